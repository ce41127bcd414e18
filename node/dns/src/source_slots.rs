//! Places that clients compete for, dealt out by source address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// A number of places, of which one address never takes the last.
///
/// An address may hold as many as are free (the dynamic threshold of shared switch buffers, with factor one): one
/// busy address gets half of all, and as much as it has is left for the address that comes next. Addresses that come one after the
/// other get half of the rest each, until nothing is left: so places are for work that ends by itself within seconds.
#[derive(Debug)]
pub struct SourceSlots {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// One place; it is given back when dropped.
#[derive(Debug)]
pub struct SourceSlot {
    shares: Arc<SourceSlots>,
    source: IpAddr,
}

impl SourceSlots {
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            state: Mutex::default(),
        })
    }

    /// A place for this address, unless it holds its share already.
    pub fn take(self: &Arc<Self>, source: IpAddr) -> Option<SourceSlot> {
        // `::ffff:10.0.0.1` is the same client as `10.0.0.1`.
        let source = source.to_canonical();
        let mut state = self.state.lock().expect("nothing panics while it is held");
        let free = self.total - state.used;
        let held = state.by_source.get(&source).copied().unwrap_or(0);
        if held >= free {
            return None;
        }
        state.used += 1;
        state.by_source.insert(source, held + 1);
        Some(SourceSlot {
            shares: Arc::clone(self),
            source,
        })
    }
}

impl Drop for SourceSlot {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock().expect("nothing panics while it is held");
        state.used -= 1;
        let held = state.by_source.remove(&self.source).unwrap_or(1) - 1;
        if held > 0 {
            state.by_source.insert(self.source, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 244, 0, last).into()
    }

    fn take_all(shares: &Arc<SourceSlots>, source: IpAddr) -> Vec<SourceSlot> {
        std::iter::from_fn(|| shares.take(source)).collect()
    }

    #[test]
    fn source_slots_leave_one_for_the_next_address() {
        let shares = SourceSlots::new(64);
        let greedy: Vec<Vec<SourceSlot>> = (1..=4).map(|last| take_all(&shares, address(last))).collect();
        assert_eq!(greedy.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 8, 4]);
        assert!(shares.take(address(5)).is_some());
    }

    #[test]
    fn source_slots_are_released_on_drop() {
        let shares = SourceSlots::new(8);
        let held = take_all(&shares, address(1));
        assert_eq!(held.len(), 4);
        drop(held);
        assert_eq!(take_all(&shares, address(2)).len(), 4);
        let state = shares.state.lock().unwrap();
        assert!(state.by_source.is_empty() && state.used == 0);
    }
}
