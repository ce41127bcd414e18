//! Rate of requests without an identity from one address, those with credentials that prove nothing among them. Probes are exempt from priority and fairness, and any client may send
//! them: without a bound one client takes the threads of all.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Each balancer and each monitor that stands behind one address asks a few times a second.
const REQUESTS_PER_SECOND: u32 = 100;
/// Requests at once, after a time without any.
const MOST_REQUESTS: u32 = 400;
/// Addresses with a rate each; all further ones share one.
const MAX_ADDRESSES: usize = 4_096;

/// See the module. Times are those of the runtime's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct AnonymousRate(Mutex<HashMap<IpAddr, Duration>>);

/// The entry that a request was charged to: its address, or the one that addresses share.
#[derive(Debug)]
pub(crate) struct Charged(IpAddr);

impl AnonymousRate {
    /// Takes one more request from this address. Returns the entry that it is charged to; `None` where it is too much.
    pub(crate) fn take(&self, address: IpAddr, now: Duration) -> Option<Charged> {
        let mut paid = self.0.lock();
        if paid.len() >= MAX_ADDRESSES && !paid.contains_key(&address) {
            paid.retain(|_, until| *until > now);
        }
        let has_own_count = paid.len() < MAX_ADDRESSES || paid.contains_key(&address);
        let key = match has_own_count {
            true => address,
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        // Each request is paid for with its part of a second, some in advance.
        let until = paid.entry(key).or_insert(now);
        let next = (*until).max(now) + Duration::from_secs(1) / REQUESTS_PER_SECOND;
        let takes = next <= now + Duration::from_secs(1) / REQUESTS_PER_SECOND * MOST_REQUESTS;
        takes.then(|| {
            *until = next;
            Charged(key)
        })
    }

    /// Gives back a taken one whose user turned out to be known.
    pub(crate) fn give_back(&self, charged: &Charged) {
        if let Some(until) = self.0.lock().get_mut(&charged.0) {
            *until = until.saturating_sub(Duration::from_secs(1) / REQUESTS_PER_SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn taken(rate: &AnonymousRate, from: IpAddr, now: u64, requests: u32) -> usize {
        let requests = 0..requests;
        requests
            .filter(|_| rate.take(from, Duration::from_secs(now)).is_some())
            .count()
    }

    #[test]
    fn anonymous_requests_are_taken_by_address_at_a_rate() {
        let rate = AnonymousRate::default();
        assert_eq!(taken(&rate, address(1), 5, 1_000), 400);
        assert_eq!(taken(&rate, address(2), 5, 1_000), 400, "another one's");
        assert_eq!(taken(&rate, address(1), 6, 1_000), 100);
        assert_eq!(taken(&rate, address(1), 60, 1_000), 400);
    }

    #[test]
    fn anonymous_requests_of_many_addresses_are_remembered_within_bounds() {
        let rate = AnonymousRate::default();
        for number in 0..10_000 {
            rate.take(address(number), Duration::from_secs(5));
        }
        assert_eq!(rate.0.lock().len(), MAX_ADDRESSES + 1);
        assert_eq!(
            taken(&rate, address(20_000), 5, 1_000),
            0,
            "those share what one has"
        );
        assert_eq!(taken(&rate, address(20_000), 60, 1_000), 400);
        assert_eq!(rate.0.lock().len(), 1, "the others have paid");
    }

    /// A request is charged to the shared entry; by the time that its user is known, its address has an entry of its own.
    #[test]
    fn anonymous_request_is_given_back_to_the_entry_that_was_charged() {
        let rate = AnonymousRate::default();
        let at = Duration::from_secs;
        for number in 0..4_096 {
            assert!(rate.take(address(number), at(5)).is_some());
        }
        assert_eq!(rate.0.lock().len(), MAX_ADDRESSES);
        let late = address(20_000);
        assert_eq!(taken(&rate, late, 5, 399), 399);
        let charged = rate.take(late, at(5)).unwrap();
        assert_eq!(taken(&rate, late, 5, 1), 0);
        // The addresses before have paid: now it has a rate of its own.
        assert_eq!(taken(&rate, late, 6, 1_000), 400);
        rate.give_back(&charged);
        assert_eq!(
            taken(&rate, late, 6, 1),
            0,
            "its own entry was not charged for that"
        );
        let shared = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        assert!(rate.0.lock().get(&shared).is_some_and(|until| *until < at(9)));
    }
}
