//! Pressure of memory and disk: measurements against the hard eviction thresholds.
//!
//! Nothing is evicted for it yet; the conditions keep new pods away.

use std::path::Path;
use std::time::Duration;

use node_sys::fs::FsUsage;

use super::reserve::Thresholds;

/// Time for which pressure is reported after it was measured last; upstream's `evictionPressureTransitionPeriod`.
const PRESSURE_LASTS: Duration = Duration::from_secs(300);

/// Resources under pressure. Upstream has no default threshold for process ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Room or inodes of the file system that pods and images lie on.
    pub disk: bool,
}

impl Pressure {
    /// Measures it.
    pub fn measure(data_dir: &Path, thresholds: &Thresholds) -> Self {
        let disk = node_sys::fs::usage(data_dir).unwrap_or_default();
        let memory = node_sys::machine::memory_bytes();
        Self::of(memory, disk, thresholds)
    }

    /// A resource that cannot be measured is not under pressure. Percentages refer to the usable size of the file system: blocks kept for
    /// others are neither used nor free. Upstream's `imagefs` is the same file system here, and where it is short
    /// upstream begins to remove images; we remove none, so that `nodefs` alone counts.
    fn of((available, whole): (u64, u64), disk: FsUsage, thresholds: &Thresholds) -> Self {
        let short = |signal: &str, available: u64, whole: u64| {
            let whole = i64::try_from(whole).unwrap_or(i64::MAX);
            let least = thresholds.get(signal).map_or(0, |threshold| threshold.of(whole));
            i64::try_from(available).unwrap_or(i64::MAX) < least
        };
        Self {
            memory: available > 0 && short("memory.available", available, whole),
            disk: short("nodefs.available", disk.available_bytes, disk.usable_bytes)
                || short("nodefs.inodesFree", disk.inodes_free, disk.inodes),
        }
    }
}

/// Times at which memory and disk were short last, so that conditions do not flap.
#[derive(Debug, Clone, Copy, Default)]
pub struct PressureHistory {
    memory: Option<Duration>,
    disk: Option<Duration>,
}

impl PressureHistory {
    /// Returns the pressure that conditions report: measured now, or within the last five minutes.
    pub fn observe(&mut self, measured: Pressure, now: Duration) -> Pressure {
        let one = |last: &mut Option<Duration>, short: bool| {
            if short {
                *last = Some(now);
            }
            last.is_some_and(|last| short || now.saturating_sub(last) < PRESSURE_LASTS)
        };
        Pressure {
            memory: one(&mut self.memory, measured.memory),
            disk: one(&mut self.disk, measured.disk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_upstreams() {
        let disk = |available, inodes_free| FsUsage {
            capacity_bytes: 5000,
            usable_bytes: 1000,
            available_bytes: available,
            inodes: 1000,
            inodes_free,
        };
        let thresholds = crate::node::reserve::Reserve::default().eviction_hard;
        let short = |memory, disk| {
            let pressure = Pressure::of((memory, 8 << 30), disk, &thresholds);
            (pressure.memory, pressure.disk)
        };
        assert_eq!(short(100 << 20, disk(100, 50)), (false, false));
        assert_eq!(short((100 << 20) - 1, disk(100, 50)), (true, false));
        assert_eq!(short(1 << 30, disk(99, 50)), (false, true));
        assert_eq!(short(1 << 30, disk(100, 49)), (false, true));
        // A file system without inodes, and what could not be read.
        assert_eq!(short(0, FsUsage::default()), (false, false));
        let own = crate::node::reserve::parse_thresholds("memory.available<50%").unwrap();
        assert!(Pressure::of((3 << 30, 8 << 30), disk(0, 0), &own).memory);
        assert!(
            !Pressure::of((3 << 30, 8 << 30), disk(0, 0), &own).disk,
            "the defaults are replaced"
        );
    }

    #[test]
    fn pressure_lasts_five_minutes() {
        let short = Pressure {
            memory: true,
            disk: false,
        };
        let mut pressure_history = PressureHistory::default();
        let at = Duration::from_secs;
        assert_eq!(
            pressure_history.observe(Pressure::default(), at(0)),
            Pressure::default()
        );
        assert_eq!(pressure_history.observe(short, at(1)), short);
        assert_eq!(pressure_history.observe(Pressure::default(), at(300)), short);
        assert_eq!(
            pressure_history.observe(Pressure::default(), at(301)),
            Pressure::default()
        );
    }
}
