//! Rate of requests without an identity from one address, those with credentials that prove nothing among them. Probes are exempt from priority and fairness, and everybody may send
//! them: without a bound one client takes the threads of all.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Each balancer and each monitor that stands behind one address asks a few times a second.
const REQUESTS_PER_SECOND: u32 = 100;
/// At once, after a time without any.
const MOST_REQUESTS: u32 = 400;
/// Addresses that are told apart; all further ones share.
const MAX_ADDRESSES: usize = 4_096;

/// See the module. Times are those of the runtime's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct AnonymousRate(Mutex<HashMap<IpAddr, Duration>>);

impl AnonymousRate {
    /// Whether one more request from this address is taken.
    pub(crate) fn takes(&self, address: IpAddr, now: Duration) -> bool {
        let mut paid = self.0.lock();
        if paid.len() >= MAX_ADDRESSES && !paid.contains_key(&address) {
            paid.retain(|_, until| *until > now);
        }
        let is_told_apart = paid.len() < MAX_ADDRESSES || paid.contains_key(&address);
        let key = match is_told_apart {
            true => address,
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        // Each request is paid for with its part of a second, some in advance.
        let until = paid.entry(key).or_insert(now);
        let next = (*until).max(now) + Duration::from_secs(1) / REQUESTS_PER_SECOND;
        let takes = next <= now + Duration::from_secs(1) / REQUESTS_PER_SECOND * MOST_REQUESTS;
        if takes {
            *until = next;
        }
        takes
    }

    /// One that was taken was not nobody's.
    pub(crate) fn give_back(&self, address: IpAddr) {
        if let Some(until) = self.0.lock().get_mut(&address) {
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

    fn taken(rate: &AnonymousRate, from: IpAddr, now: u64, asked: u32) -> usize {
        let asked = 0..asked;
        asked
            .filter(|_| rate.takes(from, Duration::from_secs(now)))
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
            rate.takes(address(number), Duration::from_secs(5));
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
}
