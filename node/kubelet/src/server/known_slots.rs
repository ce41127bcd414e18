//! Slots for connections whose client is known, shared by user and, within a user, by address.
//!
//! Where all are taken, a new connection takes the slot of the newest idle one of the user that has most, if that leaves the user
//! with no fewer than the client's own; the same holds among the addresses of one user. The address that has most finds no slot. A
//! connection that carries an answer, the followed log of another API server's client for instance, gives way only to
//! a client that has less than its assured part.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use machinery_runtime::{CancellationToken, client_of};
use parking_lot::Mutex;

use super::requests::OpenRequests;

/// A user, and an address of it, has this part of the slots even where all others are busy.
const ASSURED_PART: usize = 8;

/// A bounded number of slots.
#[derive(Debug)]
pub(super) struct KnownSlots {
    limit: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// By age: the oldest first.
    all: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    user: Arc<str>,
    address: IpAddr,
    requests: OpenRequests,
    closing: CancellationToken,
}

/// A slot among [`KnownSlots`], for as long as it is kept.
#[derive(Debug)]
pub(super) struct KnownSlot {
    of: Arc<KnownSlots>,
    id: u64,
    /// Cancelled when the connection gives way to another.
    pub(super) closing: CancellationToken,
}

impl KnownSlots {
    /// Makes so many slots.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: Mutex::default(),
        })
    }

    /// Returns a slot for a connection of this user from this address, which carries these requests, if the user's share
    /// has one.
    pub(super) fn enter(
        self: &Arc<Self>,
        user: &str,
        address: IpAddr,
        requests: &OpenRequests,
    ) -> Option<KnownSlot> {
        let address = client_of(address);
        let mut open = self.open.lock();
        if open.all.len() >= self.limit {
            let id = open.in_the_way(user, address, self.limit / ASSURED_PART)?;
            open.all.remove(&id)?.closing.cancel();
        }
        open.last += 1;
        let (id, closing) = (open.last, CancellationToken::new());
        let held = Held {
            user: user.into(),
            address,
            requests: requests.clone(),
            closing: closing.clone(),
        };
        open.all.insert(id, held);
        let of = Arc::clone(self);
        Some(KnownSlot { of, id, closing })
    }
}

impl Open {
    /// The connection that a new one of this user and address takes the slot of.
    fn in_the_way(&self, user: &str, address: IpAddr, assured: usize) -> Option<u64> {
        let users = counts(self.all.values().map(|held| &*held.user));
        let own = held_by(&users, &user);
        let richer = has_most(&users).filter(|most| users[most] > 1 + own);
        let of_user = |user: &str| {
            counts(
                self.all
                    .values()
                    .filter(|held| *held.user == *user)
                    .map(|held| held.address),
            )
        };
        let (from, of, own) = match richer {
            Some(richer) => (richer, has_most(&of_user(richer))?, own),
            None => {
                let addresses = of_user(user);
                let own = held_by(&addresses, &address);
                let richer = has_most(&addresses).filter(|most| addresses[most] > 1 + own);
                (user, richer?, own)
            }
        };
        let newest = || {
            let all = self.all.iter().rev();
            all.filter(|(_, held)| *held.user == *from && held.address == of)
        };
        let idle = newest().find(|(_, held)| !held.requests.any());
        let busy = || newest().next().filter(|_| own < assured);
        idle.or_else(busy).map(|(id, _)| *id)
    }
}

fn counts<K: Hash + Eq>(holders: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    for holder in holders {
        *counts.entry(holder).or_default() += 1;
    }
    counts
}

fn held_by<K: Hash + Eq>(counts: &HashMap<K, usize>, holder: &K) -> usize {
    counts.get(holder).copied().unwrap_or_default()
}

fn has_most<K: Copy>(counts: &HashMap<K, usize>) -> Option<K> {
    let most = counts.iter().max_by_key(|(_, count)| **count);
    most.map(|(holder, _)| *holder)
}

impl Drop for KnownSlot {
    fn drop(&mut self) {
        self.of.open.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn many(slots: &Arc<KnownSlots>, user: &str, from: u8, count: usize) -> Vec<KnownSlot> {
        with_requests(slots, user, from, count, &OpenRequests::default())
    }

    fn with_requests(
        slots: &Arc<KnownSlots>,
        user: &str,
        from: u8,
        count: usize,
        requests: &OpenRequests,
    ) -> Vec<KnownSlot> {
        let enter = |_| slots.enter(user, address(from), requests);
        (0..count).filter_map(enter).collect()
    }

    fn held(slots: &[KnownSlot]) -> usize {
        let open = |slot: &&KnownSlot| !slot.closing.is_cancelled();
        slots.iter().filter(open).count()
    }

    #[test]
    fn known_slots_of_one_user_give_way_to_another_user() {
        let slots = KnownSlots::new(64);
        let node = many(&slots, "system:node:other", 2, 1_000);
        assert_eq!(held(&node), 64, "as long as no other user comes");
        let server = many(&slots, "kube-apiserver-kubelet-client", 1, 1_000);
        assert_eq!((held(&node), held(&server)), (32, 32));
        assert!(!node[0].closing.is_cancelled(), "the oldest stay");
        assert!(many(&slots, "system:node:other", 2, 1).is_empty());
    }

    #[test]
    fn known_slots_of_one_address_give_way_to_another_address_of_the_user() {
        let slots = KnownSlots::new(64);
        let one = many(&slots, "kube-apiserver-kubelet-client", 1, 1_000);
        let other = many(&slots, "kube-apiserver-kubelet-client", 2, 1_000);
        assert_eq!((held(&one), held(&other)), (32, 32));
        let node = many(&slots, "system:node:other", 1, 1);
        assert_eq!(held(&node), 1);
        assert_eq!(held(&one) + held(&other), 63);
    }

    #[test]
    fn known_slots_with_an_answer_give_way_to_the_assured_part_alone() {
        let slots = KnownSlots::new(64);
        let (requests, server) = (OpenRequests::default(), "kube-apiserver-kubelet-client");
        let log = requests.begin();
        let one = with_requests(&slots, server, 1, 64, &requests);
        let other = with_requests(&slots, server, 2, 1_000, &requests);
        assert_eq!(
            (held(&one), held(&other)),
            (56, 8),
            "streams of the other are not ended"
        );
        drop(log);
        assert_eq!(many(&slots, server, 2, 1_000).len(), 24, "idle ones give way");
        assert_eq!(held(&one), 32);
    }

    #[test]
    fn known_slots_that_are_left_are_free() {
        let slots = KnownSlots::new(4);
        for _ in 0..3 {
            assert_eq!(many(&slots, "a", 1, 100).len(), 4);
        }
        assert!(slots.open.lock().all.is_empty());
    }
}
