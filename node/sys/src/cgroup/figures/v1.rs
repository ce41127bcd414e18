//! Figures of version 1: a folder for each controller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::text::{Files, device};
use super::{CpuFigures, DeviceIo, GroupFigures, GroupLimits, IoAmounts, MemoryFigures, TaskFigures};

/// Nanoseconds of a clock tick of `cpuacct.stat`: a hundredth of a second on every machine (`USER_HZ`).
const TICK_NANOSECONDS: u64 = 10_000_000;

/// Reads a group by the folder of each controller.
pub(in crate::cgroup) fn read(folder: impl Fn(&str) -> Option<PathBuf>) -> Option<GroupFigures> {
    let files = |controller: &str| Files::new(folder(controller));
    if !folder("memory").is_some_and(|memory| memory.is_dir()) {
        return None;
    }
    let (cpu, memory, tasks) = (files("cpu"), files("memory"), files("pids"));
    Some(GroupFigures {
        cpu: cpu_figures(&files("cpuacct"), &cpu),
        memory: memory_figures(&memory),
        io: io(&files("blkio")),
        tasks: TaskFigures {
            threads: tasks.number("pids.current"),
            threads_max: tasks.number("pids.max"),
            processes: memory.processes(),
        },
        limits: GroupLimits {
            cpu_shares: cpu.number("cpu.shares"),
            cpu_quota_us: cpu.number("cpu.cfs_quota_us"),
            cpu_period_us: cpu.number("cpu.cfs_period_us"),
            memory_bytes: memory.limit("memory.limit_in_bytes"),
            swap_bytes: memory.limit("memory.memsw.limit_in_bytes"),
            memory_reservation_bytes: memory.limit("memory.soft_limit_in_bytes"),
        },
        made_at_seconds: memory.made_at_seconds("cgroup.clone_children"),
        ..GroupFigures::default()
    })
}

fn cpu_figures(accounting: &Files, cpu: &Files) -> CpuFigures {
    let (modes, quota) = (accounting.keyed("cpuacct.stat"), cpu.keyed("cpu.stat"));
    let ticks = |name: &str| Some(modes.get(name)?.saturating_mul(TICK_NANOSECONDS));
    CpuFigures {
        usage_nanoseconds: accounting.number("cpuacct.usage"),
        user_nanoseconds: ticks("user"),
        system_nanoseconds: ticks("system"),
        periods: quota.get("nr_periods"),
        throttled_periods: quota.get("nr_throttled"),
        throttled_nanoseconds: quota.get("throttled_time"),
        burst_periods: quota.get("nr_bursts"),
        burst_nanoseconds: quota.get("burst_time"),
    }
}

fn memory_figures(memory: &Files) -> MemoryFigures {
    let detail = memory.keyed("memory.stat");
    MemoryFigures {
        usage: memory.number("memory.usage_in_bytes"),
        max_usage: memory.number("memory.max_usage_in_bytes"),
        failures: memory.number("memory.failcnt"),
        kernel: memory.number("memory.kmem.usage_in_bytes"),
        cache: detail.get("total_cache"),
        rss: detail.get("total_rss"),
        swap: detail.get("total_swap"),
        mapped_file: detail.get("total_mapped_file"),
        active_file: detail.get("total_active_file"),
        inactive_file: detail.get("total_inactive_file"),
        page_faults: detail.get("pgfault"),
        page_faults_below: detail.get("total_pgfault"),
        major_page_faults: detail.get("pgmajfault"),
        major_page_faults_below: detail.get("total_pgmajfault"),
        oom_kills: memory.keyed("memory.oom_control").get("oom_kill"),
        dirty: detail.get("total_dirty"),
        writeback: detail.get("total_writeback"),
        refaults_file: detail.get("total_workingset_refault_file"),
        refaults_anon: detail.get("total_workingset_refault_anon"),
        ..MemoryFigures::default()
    }
}

/// By the disk's scheduler where it counts, and by the throttle otherwise, which counts for every device.
fn io(blkio: &Files) -> Vec<DeviceIo> {
    let of = |source: &str| {
        let bytes = amounts(blkio, &format!("blkio.{source}.io_service_bytes_recursive"));
        let operations = amounts(blkio, &format!("blkio.{source}.io_serviced_recursive"));
        let devices: BTreeSet<_> = bytes.keys().chain(operations.keys()).copied().collect();
        let figures = devices.into_iter().map(|device| DeviceIo {
            device,
            bytes: bytes.get(&device).copied().unwrap_or_default(),
            operations: operations.get(&device).copied().unwrap_or_default(),
        });
        figures.collect::<Vec<_>>()
    };
    let own = of("bfq");
    if own.is_empty() { of("throttle") } else { own }
}

/// From lines such as `8:0 Read 4096`; the sum of all devices is left out.
fn amounts(blkio: &Files, name: &str) -> BTreeMap<(u64, u64), IoAmounts> {
    let text = blkio.text(name).unwrap_or_default();
    let mut all: BTreeMap<(u64, u64), IoAmounts> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[at, kind, amount] = fields.as_slice() else {
            continue;
        };
        let (Some(at), Ok(amount)) = (device(at), amount.parse()) else {
            continue;
        };
        let own = all.entry(at).or_default();
        let field = match kind {
            "Read" => &mut own.read,
            "Write" => &mut own.write,
            "Discard" => &mut own.discard,
            "Sync" => &mut own.sync,
            "Async" => &mut own.asynchronous,
            "Total" => &mut own.total,
            _ => continue,
        };
        *field = Some(amount);
    }
    all
}
