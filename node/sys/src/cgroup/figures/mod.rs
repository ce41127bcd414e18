//! Usage and limits of a group as far as its files say, each file read once.
//!
//! [`v1`] and [`v2`] read the files of the two versions, [`text`] their formats. `None` is a figure that the version or the
//! kernel does not have; it is never a zero.

mod text;
pub(super) mod v1;
pub(super) mod v2;

#[cfg(test)]
mod tests;

/// Figures of a group at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupFigures {
    /// Processor time.
    pub cpu: CpuFigures,
    /// Memory.
    pub memory: MemoryFigures,
    /// Reads and writes by block device.
    pub io: Vec<DeviceIo>,
    /// Processes and threads.
    pub tasks: TaskFigures,
    /// Limits.
    pub limits: GroupLimits,
    /// Time in which tasks waited for a resource (version 2).
    pub pressure: PressureFigures,
    /// Time at which the group was made, in seconds of Unix time.
    pub made_at_seconds: Option<i64>,
}

/// Processor time since the group was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuFigures {
    /// In all, in nanoseconds.
    pub usage_nanoseconds: Option<u64>,
    /// In user mode.
    pub user_nanoseconds: Option<u64>,
    /// In the kernel.
    pub system_nanoseconds: Option<u64>,
    /// Periods in which the quota was enforced.
    pub periods: Option<u64>,
    /// Periods in which the group was throttled.
    pub throttled_periods: Option<u64>,
    /// Time for which it was throttled.
    pub throttled_nanoseconds: Option<u64>,
    /// Periods with a burst.
    pub burst_periods: Option<u64>,
    /// Time used in bursts.
    pub burst_nanoseconds: Option<u64>,
}

/// Memory of a group and those below it, in bytes where no other unit is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryFigures {
    /// Charged.
    pub usage: Option<u64>,
    /// The most that was ever charged.
    pub max_usage: Option<u64>,
    /// Number of times that the limit was reached.
    pub failures: Option<u64>,
    /// Memory of the kernel.
    pub kernel: Option<u64>,
    /// Page cache.
    pub cache: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// Swap.
    pub swap: Option<u64>,
    /// Mapped files.
    pub mapped_file: Option<u64>,
    /// Page cache that is in use.
    pub active_file: Option<u64>,
    /// Page cache that could go at once.
    pub inactive_file: Option<u64>,
    /// Page faults of the group alone.
    pub page_faults: Option<u64>,
    /// Page faults of the group and those below it.
    pub page_faults_below: Option<u64>,
    /// Page faults of the group alone that read the disk.
    pub major_page_faults: Option<u64>,
    /// The same of the group and those below it.
    pub major_page_faults_below: Option<u64>,
    /// Processes killed because memory was short.
    pub oom_kills: Option<u64>,
    /// Page cache that is to be written.
    pub dirty: Option<u64>,
    /// Page cache that is being written.
    pub writeback: Option<u64>,
    /// Number of times that `memory.high` was exceeded (version 2).
    pub high_events: Option<u64>,
    /// Number of times that `memory.max` was reached (version 2).
    pub max_events: Option<u64>,
    /// Pages looked at to free memory (version 2).
    pub scanned_pages: Option<u64>,
    /// Pages freed (version 2).
    pub stolen_pages: Option<u64>,
    /// Evicted pages of files that were read again.
    pub refaults_file: Option<u64>,
    /// Evicted anonymous pages that were read again.
    pub refaults_anon: Option<u64>,
}

impl MemoryFigures {
    /// Memory charged less the page cache that could go at once.
    pub fn working_set(&self) -> Option<u64> {
        Some(self.usage?.saturating_sub(self.inactive_file.unwrap_or(0)))
    }
}

/// Reads and writes of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceIo {
    /// Major and minor number of the device.
    pub device: (u64, u64),
    /// Bytes.
    pub bytes: IoAmounts,
    /// Operations.
    pub operations: IoAmounts,
}

/// Amounts by kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoAmounts {
    /// Reads.
    pub read: Option<u64>,
    /// Writes.
    pub write: Option<u64>,
    /// Discards.
    pub discard: Option<u64>,
    /// Synchronous ones (version 1).
    pub sync: Option<u64>,
    /// Asynchronous ones (version 1).
    pub asynchronous: Option<u64>,
    /// All of them (version 1).
    pub total: Option<u64>,
}

/// Processes and threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFigures {
    /// Processes and threads of the group and those below it.
    pub threads: Option<u64>,
    /// The largest number of them; `None` without a limit.
    pub threads_max: Option<u64>,
    /// Processes of the group alone.
    pub processes: Vec<i32>,
}

/// Limits of a group; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLimits {
    /// Relative weight in cgroup v1's terms, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// Processor time per period, in microseconds.
    pub cpu_quota_us: Option<u64>,
    /// The period, in microseconds.
    pub cpu_period_us: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory and swap (version 1) or swap (version 2) in bytes.
    pub swap_bytes: Option<u64>,
    /// Memory that is kept for the group when memory is short, in bytes.
    pub memory_reservation_bytes: Option<u64>,
}

/// Time in which tasks waited, by resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureFigures {
    /// For a processor.
    pub cpu: Pressure,
    /// For memory.
    pub memory: Pressure,
    /// For reads and writes.
    pub io: Pressure,
}

/// Time in which tasks waited for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// In which some task waited, in microseconds.
    pub some_us: Option<u64>,
    /// In which all of them waited.
    pub full_us: Option<u64>,
}
