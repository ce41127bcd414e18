//! Whether the node runs short of something: measured, against upstream's default thresholds.
//!
//! Nothing is evicted for it yet; the conditions keep new pods away.

use std::path::Path;
use std::time::Duration;

use node_sys::fs::FsUsage;

/// Upstream's `memory.available`.
const MEMORY_AVAILABLE_BYTES_MIN: u64 = 100 << 20;
/// Upstream's `nodefs.available`. Its `imagefs.available` is 15 %, where it begins to remove images; we remove none.
/// The share is of what may be used at all: blocks kept for others are neither used nor free.
const FS_AVAILABLE_PERCENT_MIN: u64 = 10;
/// Upstream's `nodefs.inodesFree`.
const FS_INODES_PERCENT_MIN: u64 = 5;
/// What was short stays so for this long; upstream's `evictionPressureTransitionPeriod`.
const PRESSURE_LASTS: Duration = Duration::from_secs(300);

/// What is short. Of process ids upstream has no threshold by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Room or inodes of the file system that pods and images lie on.
    pub disk: bool,
}

impl Pressure {
    /// Measures it.
    pub fn measure(data_dir: &Path) -> Self {
        let disk = node_sys::fs::usage(data_dir).unwrap_or_default();
        Self::of(node_sys::machine::memory_available_bytes(), disk)
    }

    /// What cannot be measured is not short.
    fn of(memory_available_bytes: u64, disk: FsUsage) -> Self {
        let below = |part: u64, whole: u64, percent: u64| {
            u128::from(part) * 100 < u128::from(whole) * u128::from(percent)
        };
        Self {
            memory: (1..MEMORY_AVAILABLE_BYTES_MIN).contains(&memory_available_bytes),
            disk: below(disk.available_bytes, disk.usable_bytes, FS_AVAILABLE_PERCENT_MIN)
                || below(disk.inodes_free, disk.inodes, FS_INODES_PERCENT_MIN),
        }
    }
}

/// Remembers when something was short last, so that conditions do not flap.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lasting {
    memory: Option<Duration>,
    disk: Option<Duration>,
}

impl Lasting {
    /// What counts now.
    pub fn take(&mut self, measured: Pressure, now: Duration) -> Pressure {
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
        let short = |memory, disk| {
            let pressure = Pressure::of(memory, disk);
            (pressure.memory, pressure.disk)
        };
        assert_eq!(short(100 << 20, disk(100, 50)), (false, false));
        assert_eq!(short((100 << 20) - 1, disk(100, 50)), (true, false));
        assert_eq!(short(1 << 30, disk(99, 50)), (false, true));
        assert_eq!(short(1 << 30, disk(100, 49)), (false, true));
        // A file system without inodes, and what could not be read.
        assert_eq!(short(0, FsUsage::default()), (false, false));
    }

    #[test]
    fn pressure_lasts_five_minutes() {
        let short = Pressure {
            memory: true,
            disk: false,
        };
        let mut lasting = Lasting::default();
        let at = Duration::from_secs;
        assert_eq!(lasting.take(Pressure::default(), at(0)), Pressure::default());
        assert_eq!(lasting.take(short, at(1)), short);
        assert_eq!(lasting.take(Pressure::default(), at(300)), short);
        assert_eq!(lasting.take(Pressure::default(), at(301)), Pressure::default());
    }
}
