//! Families of processors, memory, processes and limits, with cAdvisor's names and helps.

use super::text::{Family, Of};
use crate::server::usage::rows::{Row, RowKind};

pub(super) const FAMILIES: [Family; 50] = [
    Family {
        name: "container_last_seen",
        kind: "gauge",
        help: "Last time a container was seen by the exporter",
        of: Of::Seen,
    },
    Family::counter(
        "container_cpu_user_seconds_total",
        "Cumulative user cpu time consumed in seconds.",
        |row| seconds(row.figures.cpu.user_nanoseconds),
    ),
    Family::counter(
        "container_cpu_system_seconds_total",
        "Cumulative system cpu time consumed in seconds.",
        |row| seconds(row.figures.cpu.system_nanoseconds),
    ),
    Family::labelled(
        ("container_cpu_usage_seconds_total", "counter"),
        "Cumulative cpu time consumed in seconds.",
        |row, samples| samples.add(&[("cpu", "total")], seconds(row.figures.cpu.usage_nanoseconds)),
    ),
    Family::counter(
        "container_cpu_cfs_periods_total",
        "Number of elapsed enforcement period intervals.",
        |row| throttled(row, row.figures.cpu.periods),
    ),
    Family::counter(
        "container_cpu_cfs_throttled_periods_total",
        "Number of throttled period intervals.",
        |row| throttled(row, row.figures.cpu.throttled_periods),
    ),
    Family::counter(
        "container_cpu_cfs_throttled_seconds_total",
        "Total time duration the container has been throttled.",
        |row| throttled(row, row.figures.cpu.throttled_nanoseconds).map(|time| time / 1e9),
    ),
    Family::counter(
        "container_cpu_cfs_burst_periods_total",
        "Number of periods when burst occurs.",
        |row| throttled(row, row.figures.cpu.burst_periods),
    ),
    Family::counter(
        "container_cpu_cfs_burst_seconds_total",
        "Total time duration the container has been bursted.",
        |row| throttled(row, row.figures.cpu.burst_nanoseconds).map(|time| time / 1e9),
    ),
    Family::gauge(
        "container_memory_cache",
        "Number of bytes of page cache memory.",
        |row| number(row.figures.memory.cache),
    ),
    Family::gauge("container_memory_rss", "Size of RSS in bytes.", |row| {
        number(row.figures.memory.rss)
    }),
    Family::gauge(
        "container_memory_kernel_usage",
        "Size of kernel memory allocated in bytes.",
        |row| number(row.figures.memory.kernel),
    ),
    Family::gauge(
        "container_memory_mapped_file",
        "Size of memory mapped files in bytes.",
        |row| number(row.figures.memory.mapped_file),
    ),
    Family::gauge("container_memory_swap", "Container swap usage in bytes.", |row| {
        number(row.figures.memory.swap)
    }),
    Family::counter(
        "container_memory_failcnt",
        "Number of memory usage hits limits",
        |row| number(row.figures.memory.failures),
    ),
    Family::gauge(
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |row| number(row.figures.memory.usage),
    ),
    Family::gauge(
        "container_memory_max_usage_bytes",
        "Maximum memory usage recorded in bytes",
        |row| number(row.figures.memory.max_usage),
    ),
    Family::gauge(
        "container_memory_working_set_bytes",
        "Current working set in bytes.",
        |row| number(row.figures.memory.working_set()),
    ),
    Family::gauge(
        "container_memory_total_active_file_bytes",
        "Current total active file in bytes.",
        |row| number(row.figures.memory.active_file),
    ),
    Family::gauge(
        "container_memory_total_inactive_file_bytes",
        "Current total inactive file in bytes.",
        |row| number(row.figures.memory.inactive_file),
    ),
    Family::labelled(
        ("container_memory_failures_total", "counter"),
        "Cumulative count of memory allocation failures.",
        |row, samples| {
            let memory = &row.figures.memory;
            for (kind, scope, count) in [
                ("pgfault", "container", memory.page_faults),
                ("pgmajfault", "container", memory.major_page_faults),
                ("pgfault", "hierarchy", memory.page_faults_below),
                ("pgmajfault", "hierarchy", memory.major_page_faults_below),
            ] {
                samples.add(&[("failure_type", kind), ("scope", scope)], number(count));
            }
        },
    ),
    Family::counter(
        "container_memory_events_high_total",
        "Cumulative count of memory.high throttle events for the container",
        |row| number(row.figures.memory.high_events),
    ),
    Family::counter(
        "container_memory_events_max_total",
        "Cumulative count of memory.max limit hit events for the container",
        |row| number(row.figures.memory.max_events),
    ),
    Family::gauge(
        "container_memory_file_dirty_bytes",
        "Number of bytes of file cache that has been modified but not yet written back to disk.",
        |row| number(row.figures.memory.dirty),
    ),
    Family::gauge(
        "container_memory_file_writeback_bytes",
        "Number of bytes of file cache that is currently being written back to disk.",
        |row| number(row.figures.memory.writeback),
    ),
    Family::counter(
        "container_memory_pgscan_total",
        "Cumulative number of pages scanned by the page reclaim algorithm.",
        |row| number(row.figures.memory.scanned_pages),
    ),
    Family::counter(
        "container_memory_pgsteal_total",
        "Cumulative number of pages reclaimed by the page reclaim algorithm.",
        |row| number(row.figures.memory.stolen_pages),
    ),
    Family::counter(
        "container_memory_workingset_refault_file_total",
        "Cumulative number of refaults of previously evicted file pages.",
        |row| number(row.figures.memory.refaults_file),
    ),
    Family::counter(
        "container_memory_workingset_refault_anon_total",
        "Cumulative number of refaults of previously evicted anonymous pages.",
        |row| number(row.figures.memory.refaults_anon),
    ),
    Family::gauge(
        "container_processes",
        "Number of processes running inside the container.",
        |row| Some(row.figures.tasks.processes.len() as f64),
    ),
    Family::gauge(
        "container_file_descriptors",
        "Number of open file descriptors for the container.",
        |row| number(row.files.descriptors),
    ),
    Family::gauge(
        "container_sockets",
        "Number of open sockets for the container.",
        |row| number(row.files.sockets),
    ),
    Family::gauge(
        "container_threads_max",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |row| {
            row.figures
                .tasks
                .threads
                .map(|_| zero_without(row.figures.tasks.threads_max))
        },
    ),
    Family::gauge(
        "container_threads",
        "Number of threads running inside the container",
        |row| number(row.figures.tasks.threads),
    ),
    Family::labelled(
        ("container_ulimits_soft", "gauge"),
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        |row, samples| samples.add(&[("ulimit", "max_open_files")], number(row.open_file_limit)),
    ),
    Family::counter(
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
        |row| number(row.figures.memory.oom_kills),
    ),
    Family::counter(
        "container_pressure_cpu_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        |row| microseconds(row.figures.pressure.cpu.full_us),
    ),
    Family::counter(
        "container_pressure_cpu_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to CPU congestion.",
        |row| microseconds(row.figures.pressure.cpu.some_us),
    ),
    Family::counter(
        "container_pressure_memory_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        |row| microseconds(row.figures.pressure.memory.full_us),
    ),
    Family::counter(
        "container_pressure_memory_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to memory congestion.",
        |row| microseconds(row.figures.pressure.memory.some_us),
    ),
    Family::counter(
        "container_pressure_io_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        |row| microseconds(row.figures.pressure.io.full_us),
    ),
    Family::counter(
        "container_pressure_io_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to IO congestion.",
        |row| microseconds(row.figures.pressure.io.some_us),
    ),
    Family::fact(
        "container_creation_time_seconds",
        "Container creation time since unix epoch in seconds.",
        |row| created(row).or_else(|| made(row)),
    ),
    Family::fact(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        |row| match row.group.kind {
            RowKind::Machine => created(row),
            // The group of a container is made when it starts.
            _ => made(row).or_else(|| created(row)),
        },
    ),
    Family::fact(
        "container_spec_cpu_period",
        "CPU period of the container.",
        |row| number(row.figures.limits.cpu_period_us),
    ),
    Family::fact("container_spec_cpu_quota", "CPU quota of the container.", |row| {
        number(row.figures.limits.cpu_quota_us)
    }),
    Family::fact(
        "container_spec_cpu_shares",
        "CPU share of the container.",
        |row| number(row.figures.limits.cpu_shares),
    ),
    Family::fact(
        "container_spec_memory_limit_bytes",
        "Memory limit for the container.",
        |row| Some(zero_without(row.figures.limits.memory_bytes)),
    ),
    Family::fact(
        "container_spec_memory_swap_limit_bytes",
        "Memory swap limit for the container.",
        |row| Some(zero_without(row.figures.limits.swap_bytes)),
    ),
    Family::fact(
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        |row| Some(zero_without(row.figures.limits.memory_reservation_bytes)),
    ),
];

pub(super) fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn seconds(nanoseconds: Option<u64>) -> Option<f64> {
    number(nanoseconds).map(|time| time / 1e9)
}

fn microseconds(time: Option<u64>) -> Option<f64> {
    number(time).map(|time| time / 1e6)
}

/// A group without a quota is never throttled and has no such figures.
fn throttled(row: &Row, value: Option<u64>) -> Option<f64> {
    row.figures.limits.cpu_quota_us?;
    number(value)
}

/// Without a limit cAdvisor says zero.
fn zero_without(limit: Option<u64>) -> f64 {
    number(limit).unwrap_or(0.0)
}

fn created(row: &Row) -> Option<f64> {
    row.group.created_at.map(|at| at.as_second() as f64)
}

fn made(row: &Row) -> Option<f64> {
    row.figures.made_at_seconds.map(|at| at as f64)
}
