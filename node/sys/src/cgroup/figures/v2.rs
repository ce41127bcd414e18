//! Figures of version 2: one folder.

use std::path::Path;

use super::text::{Files, device};
use super::{
    CpuFigures, DeviceIo, GroupFigures, GroupLimits, IoAmounts, MemoryFigures, PressureFigures, TaskFigures,
};
use crate::machine;

/// Reads a group by its folder. The root has no files of its memory, of which the machine has the figures.
pub(in crate::cgroup) fn read(folder: &Path, is_root: bool) -> Option<GroupFigures> {
    if !folder.is_dir() {
        return None;
    }
    let files = Files::new(Some(folder.to_path_buf()));
    let mut memory = memory_figures(&files);
    if is_root && memory.usage.is_none() {
        memory.usage = Some(machine::memory_used_bytes());
        memory.swap = Some(machine::swap_used_bytes());
    }
    let quota = files.text("cpu.max").unwrap_or_default();
    let (quota, period) = quota.trim().split_once(' ').unwrap_or_default();
    Some(GroupFigures {
        cpu: cpu_figures(&files),
        memory,
        io: io(&files),
        tasks: TaskFigures {
            threads: files.number("pids.current"),
            threads_max: files.number("pids.max"),
            processes: files.processes(),
        },
        limits: GroupLimits {
            cpu_shares: files.number("cpu.weight").map(shares),
            cpu_quota_us: quota.parse().ok(),
            cpu_period_us: period.parse().ok(),
            memory_bytes: files.number("memory.max"),
            swap_bytes: files.number("memory.swap.max"),
            // `memory.min` is always there; zero is the kernel's default and no reservation.
            memory_reservation_bytes: files.number("memory.min").filter(|bytes| *bytes > 0),
        },
        pressure: PressureFigures {
            cpu: files.pressure("cpu.pressure"),
            memory: files.pressure("memory.pressure"),
            io: files.pressure("io.pressure"),
        },
        made_at_seconds: files.made_at_seconds("cgroup.events"),
    })
}

/// The v1 shares that stand for a weight: 1..10000 onto 2..262144, the inverse of how a limit is written.
fn shares(weight: u64) -> u64 {
    2 + (weight.clamp(1, 10_000) - 1) * 262_142 / 9999
}

fn cpu_figures(files: &Files) -> CpuFigures {
    let used = files.keyed("cpu.stat");
    let time = |name: &str| Some(used.get(name)?.saturating_mul(1000));
    CpuFigures {
        usage_nanoseconds: time("usage_usec"),
        user_nanoseconds: time("user_usec"),
        system_nanoseconds: time("system_usec"),
        periods: used.get("nr_periods"),
        throttled_periods: used.get("nr_throttled"),
        throttled_nanoseconds: time("throttled_usec"),
        burst_periods: used.get("nr_bursts"),
        burst_nanoseconds: time("burst_usec"),
    }
}

fn memory_figures(files: &Files) -> MemoryFigures {
    let (detail, events) = (files.keyed("memory.stat"), files.keyed("memory.events"));
    // Those of the group itself: its groups below have their own.
    let own_events = files.keyed("memory.events.local");
    let faults = (detail.get("pgfault"), detail.get("pgmajfault"));
    MemoryFigures {
        usage: files.number("memory.current"),
        max_usage: files.number("memory.peak"),
        failures: events.get("max"),
        kernel: detail.get("kernel"),
        cache: detail.get("file"),
        rss: detail.get("anon"),
        swap: files.number("memory.swap.current"),
        mapped_file: detail.get("file_mapped"),
        active_file: detail.get("active_file"),
        inactive_file: detail.get("inactive_file"),
        page_faults: faults.0,
        page_faults_below: faults.0,
        major_page_faults: faults.1,
        major_page_faults_below: faults.1,
        oom_kills: own_events.get("oom_kill").or(events.get("oom_kill")),
        dirty: detail.get("file_dirty"),
        writeback: detail.get("file_writeback"),
        high_events: events.get("high"),
        max_events: events.get("max"),
        scanned_pages: detail.get("pgscan"),
        stolen_pages: detail.get("pgsteal"),
        refaults_file: detail.get("workingset_refault_file"),
        refaults_anon: detail.get("workingset_refault_anon"),
    }
}

/// Lines such as `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`.
fn io(files: &Files) -> Vec<DeviceIo> {
    let text = files.text("io.stat").unwrap_or_default();
    let device = |line: &str| {
        let (at, values) = line.split_once(' ')?;
        let value = |name: &str| {
            let mut pairs = values.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.find(|(own, _)| *own == name)?.1.parse().ok()
        };
        let amounts = |read, write, discard| IoAmounts {
            read: value(read),
            write: value(write),
            discard: value(discard),
            ..IoAmounts::default()
        };
        Some(DeviceIo {
            device: device(at)?,
            bytes: amounts("rbytes", "wbytes", "dbytes"),
            operations: amounts("rios", "wios", "dios"),
        })
    };
    text.lines().filter_map(device).collect()
}
