//! Families of disks and links, with cAdvisor's names and helps.
//!
//! A group has the reads and writes of its processes. The machine has those of each disk that holds a file system, and the
//! room of the file system. A sandbox has the traffic of its pod.

use node_sys::cgroup::{DeviceIo, IoAmounts};
use node_sys::fs::FsUsage;
use node_sys::proc_figures::{DiskFigures, LinkFigures};

use super::families::number;
use super::text::{Family, Samples, escaped};
use crate::server::usage::rows::Row;

pub(super) const FAMILIES: [Family; 26] = [
    Family::labelled(
        ("container_fs_inodes_free", "gauge"),
        "Number of available Inodes",
        |row, samples| rooms(row, samples, |room| room.inodes_free),
    ),
    Family::labelled(
        ("container_fs_inodes_total", "gauge"),
        "Number of Inodes",
        |row, samples| rooms(row, samples, |room| room.inodes),
    ),
    Family::labelled(
        ("container_fs_limit_bytes", "gauge"),
        "Number of bytes that can be consumed by the container on this filesystem.",
        |row, samples| rooms(row, samples, |room| room.capacity_bytes),
    ),
    Family::labelled(
        ("container_fs_usage_bytes", "gauge"),
        "Number of bytes that are consumed by the container on this filesystem.",
        |row, samples| rooms(row, samples, used),
    ),
    Family::labelled(
        ("container_fs_reads_bytes_total", "counter"),
        "Cumulative count of bytes read",
        |row, samples| either(row, samples, |io| io.bytes.read, |disk| disk.bytes().0 as f64),
    ),
    Family::labelled(
        ("container_fs_reads_total", "counter"),
        "Cumulative count of reads completed",
        |row, samples| either(row, samples, |io| io.operations.read, |disk| disk.reads[0] as f64),
    ),
    Family::labelled(
        ("container_fs_sector_reads_total", "counter"),
        "Cumulative count of sector reads completed",
        |row, samples| disks(row, samples, |disk| disk.reads[2] as f64),
    ),
    Family::labelled(
        ("container_fs_reads_merged_total", "counter"),
        "Cumulative count of reads merged",
        |row, samples| disks(row, samples, |disk| disk.reads[1] as f64),
    ),
    Family::labelled(
        ("container_fs_read_seconds_total", "counter"),
        "Cumulative count of seconds spent reading",
        |row, samples| disks(row, samples, |disk| disk.reads[3] as f64 / 1e3),
    ),
    Family::labelled(
        ("container_fs_writes_bytes_total", "counter"),
        "Cumulative count of bytes written",
        |row, samples| either(row, samples, |io| io.bytes.write, |disk| disk.bytes().1 as f64),
    ),
    Family::labelled(
        ("container_fs_writes_total", "counter"),
        "Cumulative count of writes completed",
        |row, samples| {
            either(
                row,
                samples,
                |io| io.operations.write,
                |disk| disk.writes[0] as f64,
            )
        },
    ),
    Family::labelled(
        ("container_fs_sector_writes_total", "counter"),
        "Cumulative count of sector writes completed",
        |row, samples| disks(row, samples, |disk| disk.writes[2] as f64),
    ),
    Family::labelled(
        ("container_fs_writes_merged_total", "counter"),
        "Cumulative count of writes merged",
        |row, samples| disks(row, samples, |disk| disk.writes[1] as f64),
    ),
    Family::labelled(
        ("container_fs_write_seconds_total", "counter"),
        "Cumulative count of seconds spent writing",
        |row, samples| disks(row, samples, |disk| disk.writes[3] as f64 / 1e3),
    ),
    Family::labelled(
        ("container_fs_io_current", "gauge"),
        "Number of I/Os currently in progress",
        |row, samples| disks(row, samples, |disk| disk.in_progress as f64),
    ),
    Family::labelled(
        ("container_fs_io_time_seconds_total", "counter"),
        "Cumulative count of seconds spent doing I/Os",
        |row, samples| disks(row, samples, |disk| disk.busy_milliseconds as f64 / 1e3),
    ),
    Family::labelled(
        ("container_fs_io_time_weighted_seconds_total", "counter"),
        "Cumulative weighted I/O time in seconds",
        |row, samples| disks(row, samples, |disk| disk.weighted_milliseconds as f64 / 1e3),
    ),
    Family::labelled(
        ("container_blkio_device_usage_total", "counter"),
        "Blkio Device bytes usage",
        device_usage,
    ),
    Family::labelled(
        ("container_network_receive_bytes_total", "counter"),
        "Cumulative count of bytes received",
        |row, samples| links(row, samples, |link| link.received[0]),
    ),
    Family::labelled(
        ("container_network_receive_packets_total", "counter"),
        "Cumulative count of packets received",
        |row, samples| links(row, samples, |link| link.received[1]),
    ),
    Family::labelled(
        ("container_network_receive_packets_dropped_total", "counter"),
        "Cumulative count of packets dropped while receiving",
        |row, samples| links(row, samples, |link| link.received[3]),
    ),
    Family::labelled(
        ("container_network_receive_errors_total", "counter"),
        "Cumulative count of errors encountered while receiving",
        |row, samples| links(row, samples, |link| link.received[2]),
    ),
    Family::labelled(
        ("container_network_transmit_bytes_total", "counter"),
        "Cumulative count of bytes transmitted",
        |row, samples| links(row, samples, |link| link.sent[0]),
    ),
    Family::labelled(
        ("container_network_transmit_packets_total", "counter"),
        "Cumulative count of packets transmitted",
        |row, samples| links(row, samples, |link| link.sent[1]),
    ),
    Family::labelled(
        ("container_network_transmit_packets_dropped_total", "counter"),
        "Cumulative count of packets dropped while transmitting",
        |row, samples| links(row, samples, |link| link.sent[3]),
    ),
    Family::labelled(
        ("container_network_transmit_errors_total", "counter"),
        "Cumulative count of errors encountered while transmitting",
        |row, samples| links(row, samples, |link| link.sent[2]),
    ),
];

fn used(room: &FsUsage) -> u64 {
    room.capacity_bytes.saturating_sub(room.free_bytes)
}

fn rooms(row: &Row, samples: &mut Samples<'_>, of: fn(&FsUsage) -> u64) {
    for (own, _) in &row.file_systems {
        samples.add(&[("device", &escaped(&own.source))], number(Some(of(&own.room))));
    }
}

fn disks(row: &Row, samples: &mut Samples<'_>, of: fn(&DiskFigures) -> f64) {
    for (own, disk) in &row.file_systems {
        samples.add(&[("device", &escaped(&own.source))], Some(of(disk)));
    }
}

fn devices(row: &Row, samples: &mut Samples<'_>, of: fn(&DeviceIo) -> Option<u64>) {
    for (io, name) in row.figures.io.iter().zip(&row.devices) {
        samples.add(&[("device", &escaped(name))], number(of(io)));
    }
}

/// Disks of the machine, or devices of a group.
fn either(
    row: &Row,
    samples: &mut Samples<'_>,
    of: fn(&DeviceIo) -> Option<u64>,
    disk: fn(&DiskFigures) -> f64,
) {
    if row.file_systems.is_empty() {
        devices(row, samples, of);
    } else {
        disks(row, samples, disk);
    }
}

fn device_usage(row: &Row, samples: &mut Samples<'_>) {
    for (io, name) in row.figures.io.iter().zip(&row.devices) {
        let (major, minor) = (io.device.0.to_string(), io.device.1.to_string());
        let name = escaped(name);
        for (operation, bytes) in operations(&io.bytes) {
            let labels = [
                ("device", name.as_str()),
                ("major", &major),
                ("minor", &minor),
                ("operation", operation),
            ];
            samples.add(&labels, number(bytes));
        }
    }
}

fn operations(amounts: &IoAmounts) -> [(&'static str, Option<u64>); 6] {
    [
        ("Async", amounts.asynchronous),
        ("Discard", amounts.discard),
        ("Read", amounts.read),
        ("Sync", amounts.sync),
        ("Total", amounts.total),
        ("Write", amounts.write),
    ]
}

fn links(row: &Row, samples: &mut Samples<'_>, of: fn(&LinkFigures) -> u64) {
    for link in &row.links {
        samples.add(&[("interface", &escaped(&link.name))], number(Some(of(link))));
    }
}
