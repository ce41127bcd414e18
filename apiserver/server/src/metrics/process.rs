//! Figures of the process beside those of the prometheus crate: its address space, and the traffic of its network
//! namespace.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// Counters of the kernel for a network namespace.
const NETSTAT: &str = "/proc/self/net/netstat";
const LIMITS: &str = "/proc/self/limits";

/// Reads the figures at each request for metrics.
pub(super) struct ProcessFigures {
    address_space: Gauge,
    received: Counter,
    sent: Counter,
}

impl ProcessFigures {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            address_space: Gauge::new(
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
            )?,
            received: Counter::new(
                "process_network_receive_bytes_total",
                "Number of bytes received by the process over the network.",
            )?,
            sent: Counter::new(
                "process_network_transmit_bytes_total",
                "Number of bytes sent by the process over the network.",
            )?,
        })
    }
}

impl Collector for ProcessFigures {
    fn desc(&self) -> Vec<&Desc> {
        let counters = self.received.desc().into_iter().chain(self.sent.desc());
        self.address_space.desc().into_iter().chain(counters).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "samples are floats")]
    fn collect(&self) -> Vec<MetricFamily> {
        let limits = std::fs::read_to_string(LIMITS).unwrap_or_default();
        if let Some(limit) = address_space(&limits) {
            self.address_space.set(limit as f64);
        }
        let table = std::fs::read_to_string(NETSTAT).unwrap_or_default();
        for (counter, column) in [(&self.received, "InOctets"), (&self.sent, "OutOctets")] {
            let octets = octets(&table, column).unwrap_or_default() as f64;
            counter.inc_by((octets - counter.get()).max(0.0));
        }
        let counters = self.received.collect().into_iter().chain(self.sent.collect());
        self.address_space.collect().into_iter().chain(counters).collect()
    }
}

/// The soft limit of the process's address space.
fn address_space(limits: &str) -> Option<u64> {
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    match limit.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

/// A value of the table's `IpExt`: a line of names, and one of values.
fn octets(table: &str, column: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == column)?;
    values.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_found_by_their_columns() {
        let table = "TcpExt: SyncookiesSent InOctets\nTcpExt: 1 2\n\
                     IpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 30 40\n";
        assert_eq!(octets(table, "InOctets"), Some(30));
        assert_eq!(octets(table, "OutOctets"), Some(40));
        assert_eq!(octets(table, "Nothing"), None);
        assert_eq!(octets("", "InOctets"), None);
    }

    #[test]
    fn address_space_is_read_from_the_limits() {
        let table =
            |limit: &str| format!("Max cpu time  1  2  seconds\nMax address space  {limit}  9  bytes\n");
        assert_eq!(address_space(&table("4096")), Some(4096));
        assert_eq!(address_space(&table("unlimited")), Some(u64::MAX));
        assert_eq!(address_space(""), None);
    }
}
