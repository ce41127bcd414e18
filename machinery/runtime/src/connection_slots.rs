//! Places for connections whose client has shown nothing yet: bounded altogether and by address, so that a client with many
//! of them keeps no other client out.
//!
//! A new connection always finds a place: the oldest one of the same address, or else of the address that has the most,
//! is closed for it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Part of the slots that one client may hold.
const PART_OF_ADDRESS: usize = 8;
/// One client of IPv6 has a whole network of this many bits of prefix.
const V6_PREFIX_BITS: u32 = 64;

/// Returns the addresses that count as one client: an address of IPv4, a network of IPv6.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - V6_PREFIX_BITS);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// A bounded number of places.
#[derive(Debug)]
pub struct ConnectionSlots {
    limit: usize,
    /// Returns the address or network that counts as one client.
    client: fn(IpAddr) -> IpAddr,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// By age: the oldest first.
    all: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// A place among [`ConnectionSlots`], for as long as it is kept.
#[derive(Debug)]
pub struct ConnectionSlot {
    of: Arc<ConnectionSlots>,
    id: u64,
    /// Cancelled when the connection gives way to another.
    pub closing: CancellationToken,
}

impl ConnectionSlots {
    /// Makes this many slots, at least one; a client ([`client_of`]) may hold an eighth of them.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::among(limit, client_of)
    }

    /// Makes this many slots for clients that cannot choose their addresses, as pods: each address is one client, also of
    /// IPv6.
    pub fn for_pods(limit: usize) -> Arc<Self> {
        Self::among(limit, |address| address.to_canonical())
    }

    fn among(limit: usize, client: fn(IpAddr) -> IpAddr) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            client,
            open: Mutex::default(),
        })
    }

    /// Returns a slot for a connection from this address; the oldest connection of a client with too many is closed for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let address = (self.client)(address);
        let mut open = self.open.lock();
        if let Some(id) = self.in_the_way(&open.all, address)
            && let Some((_, closed)) = open.all.remove(&id)
        {
            closed.cancel();
        }
        open.last += 1;
        let (id, closing) = (open.last, CancellationToken::new());
        open.all.insert(id, (address, closing.clone()));
        ConnectionSlot {
            of: Arc::clone(self),
            id,
            closing,
        }
    }

    /// Returns the connection that a new one of this address replaces.
    fn in_the_way(&self, all: &BTreeMap<u64, (IpAddr, CancellationToken)>, address: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (own, _) in all.values() {
            *counts.entry(*own).or_default() += 1;
        }
        let of_address = counts.get(&address).copied().unwrap_or_default();
        // The client with most connections pays, so that a flood from one cannot close the connections of
        // others.
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let from = if of_address >= self.limit.div_ceil(PART_OF_ADDRESS) {
            address
        } else {
            most.filter(|_| all.len() >= self.limit)?.0
        };
        all.iter().find(|(_, (own, _))| *own == from).map(|(id, _)| *id)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.of.open.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 244, 0, last).into()
    }

    fn held(places: &[ConnectionSlot]) -> usize {
        places
            .iter()
            .filter(|place| !place.closing.is_cancelled())
            .count()
    }

    #[test]
    fn connection_slots_of_one_address_are_bounded() {
        let places = ConnectionSlots::new(64);
        let other = places.enter(address(2));
        let crowd: Vec<ConnectionSlot> = (0..1_000).map(|_| places.enter(address(1))).collect();
        assert_eq!(held(&crowd), 8);
        assert!(!crowd.last().unwrap().closing.is_cancelled(), "the newest stay");
        assert!(!other.closing.is_cancelled());
    }

    #[test]
    fn connection_slots_of_one_network_of_ipv6_are_one_clients() {
        let of = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.244.0.1"), address(1));
        let places = ConnectionSlots::new(64);
        let network = u128::from("2001:db8::".parse::<Ipv6Addr>().unwrap());
        let crowd = |places: &Arc<ConnectionSlots>| -> Vec<ConnectionSlot> {
            let addresses = (1..1_000).map(|number| Ipv6Addr::from(network + number));
            addresses.map(|address| places.enter(address.into())).collect()
        };
        assert_eq!(held(&crowd(&places)), 8);
        assert_eq!(held(&crowd(&ConnectionSlots::for_pods(64))), 64);
    }

    #[test]
    fn connection_slots_evict_from_the_busiest_address() {
        let places = ConnectionSlots::new(64);
        let server = places.enter(address(1));
        let crowd: Vec<ConnectionSlot> = (0..2_000)
            .map(|number| places.enter(address(u8::try_from(2 + number % 16).unwrap())))
            .collect();
        assert_eq!(held(&crowd), 63);
        assert!(!server.closing.is_cancelled());
        let newest = places.enter(address(200));
        assert!(!newest.closing.is_cancelled());
        assert_eq!(held(&crowd), 62);
    }

    #[test]
    fn connection_slots_are_freed_on_drop() {
        let places = ConnectionSlots::new(8);
        for _ in 0..100 {
            let place = places.enter(address(1));
            assert!(!place.closing.is_cancelled());
        }
        assert!(places.open.lock().all.is_empty());
    }
}
