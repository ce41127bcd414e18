//! The page of rows made by hand.

use super::*;
use crate::server::metric_families::{all_are_there, compare};
use crate::server::usage::rows::{GroupName, Row, RowKind};
use jiff::Timestamp;
use node_sys::cgroup::{
    CpuFigures, DeviceIo, GroupFigures, GroupLimits, IoAmounts, MemoryFigures, Pressure, PressureFigures,
    TaskFigures,
};
use node_sys::fs::FsUsage;
use node_sys::proc_figures::{DiskFigures, FileSystem, LinkFigures, OpenFiles};
use std::sync::OnceLock;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn group(kind: RowKind, id: &str) -> GroupName {
    let of_pod = |value: &str| match kind {
        RowKind::Machine | RowKind::Pods => String::new(),
        _ => value.to_owned(),
    };
    let of_container = |value: &str| match kind {
        RowKind::Container => value.to_owned(),
        _ => String::new(),
    };
    GroupName {
        kind,
        id: id.to_owned(),
        container: of_container("main"),
        image: of_container("a\"b"),
        name: of_container("c1"),
        namespace: of_pod("shop"),
        pod: of_pod("web"),
        pod_uid: of_pod("u"),
        created_at: matches!(kind, RowKind::Container).then(|| time(901)),
    }
}

fn row(group: GroupName, figures: GroupFigures) -> Row {
    Row {
        devices: figures.io.iter().map(|_| "/dev/sda".to_owned()).collect(),
        group,
        figures,
        files: OpenFiles::default(),
        open_file_limit: None,
        links: Vec::new(),
        file_systems: Vec::new(),
    }
}

fn container() -> Row {
    let figures = GroupFigures {
        cpu: CpuFigures {
            usage_nanoseconds: Some(2_500_000_000),
            throttled_periods: Some(4),
            ..CpuFigures::default()
        },
        memory: MemoryFigures {
            usage: Some(5_000),
            inactive_file: Some(904),
            page_faults: Some(7),
            oom_kills: Some(1),
            ..MemoryFigures::default()
        },
        io: vec![DeviceIo {
            device: (8, 0),
            bytes: IoAmounts {
                read: Some(4096),
                ..IoAmounts::default()
            },
            ..DeviceIo::default()
        }],
        tasks: TaskFigures {
            threads: Some(5),
            threads_max: None,
            processes: vec![17],
        },
        limits: GroupLimits {
            cpu_quota_us: Some(20_000),
            memory_bytes: Some(8_192),
            ..GroupLimits::default()
        },
        made_at_seconds: Some(902),
        ..GroupFigures::default()
    };
    row(group(RowKind::Container, "/kubepods/besteffort/podu/c1"), figures)
}

fn reading() -> Reading {
    let mut machine = row(group(RowKind::Machine, "/"), GroupFigures::default());
    let file_system = FileSystem {
        source: "/dev/sda".to_owned(),
        device: (8, 0),
        room: FsUsage {
            capacity_bytes: 100,
            free_bytes: 60,
            ..FsUsage::default()
        },
    };
    let disk = DiskFigures {
        writes: [3, 0, 2, 1500],
        ..DiskFigures::default()
    };
    machine.file_systems.push((file_system, disk));
    let mut sandbox = row(
        group(RowKind::Sandbox, "/kubepods/besteffort/podu/s1"),
        GroupFigures::default(),
    );
    sandbox.links.push(LinkFigures {
        name: "eth0".to_owned(),
        received: [1500, 10, 1, 2],
        sent: [900, 9, 3, 4],
    });
    Reading {
        now: time(1_000),
        rows: vec![machine, sandbox, container()],
        cut: false,
        page: OnceLock::new(),
    }
}

#[test]
fn cadvisor_rows_have_upstreams_names_and_labels() {
    let text = rendered(Some(&reading()), &Machine::observe(), Processors::default());
    let own = |container: &str| {
        format!(
            r#"{{container="main",{container}id="/kubepods/besteffort/podu/c1",image="a\"b",name="c1",namespace="shop",pod="web"}}"#
        )
    };
    let plain = own("");
    let sandbox =
        r#"id="/kubepods/besteffort/podu/s1",image="",interface="eth0",name="",namespace="shop",pod="web"}"#;
    let machine = r#"id="/",image="",name="",namespace="",pod=""}"#;
    for line in [
        format!("container_cpu_usage_seconds_total{} 2.5 1000000", own(r#"cpu="total","#)),
        format!("container_cpu_cfs_throttled_periods_total{plain} 4 1000000"),
        format!("container_memory_working_set_bytes{plain} 4096 1000000"),
        format!("container_oom_events_total{plain} 1 1000000"),
        format!("container_processes{plain} 1 1000000"),
        format!("container_threads{plain} 5 1000000"),
        format!("container_threads_max{plain} 0 1000000"),
        format!("container_creation_time_seconds{plain} 901"),
        format!("container_start_time_seconds{plain} 902"),
        format!("container_spec_cpu_quota{plain} 20000"),
        format!("container_spec_memory_limit_bytes{plain} 8192"),
        format!("container_fs_reads_bytes_total{} 4096 1000000", own(r#"device="/dev/sda","#)),
        format!(r#"container_fs_usage_bytes{{container="",device="/dev/sda",{machine} 40 1000000"#),
        format!(r#"container_fs_writes_bytes_total{{container="",device="/dev/sda",{machine} 1024 1000000"#),
        format!(r#"container_fs_write_seconds_total{{container="",device="/dev/sda",{machine} 1.5 1000000"#),
        format!(r#"container_network_receive_packets_dropped_total{{container="",{sandbox} 2 1000000"#),
        format!(r#"container_network_transmit_errors_total{{container="",{sandbox} 3 1000000"#),
        r#"container_blkio_device_usage_total{container="main",device="/dev/sda",id="/kubepods/besteffort/podu/c1",image="a\"b",major="8",minor="0",name="c1",namespace="shop",operation="Read",pod="web"} 4096 1000000"#.to_owned(),
        r#"container_memory_failures_total{container="main",failure_type="pgfault",id="/kubepods/besteffort/podu/c1",image="a\"b",name="c1",namespace="shop",pod="web",scope="container"} 7 1000000"#.to_owned(),
        "container_scrape_error 0".to_owned(),
        "machine_scrape_error 0".to_owned(),
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\nis not in\n{text}");
    }
    assert!(text.contains("# TYPE container_cpu_usage_seconds_total counter\n"));
    for unknown in ["pgmajfault", "container_memory_rss", "container_sockets"] {
        assert!(
            !text.contains(unknown),
            "what is unknown has no sample: {unknown}"
        );
    }
}

/// A row of which everything is known.
fn whole() -> Row {
    let amounts = IoAmounts {
        read: Some(1),
        write: Some(1),
        ..IoAmounts::default()
    };
    let pressure = Pressure {
        some_us: Some(1),
        full_us: Some(1),
    };
    let one = Some(1);
    let figures = GroupFigures {
        cpu: CpuFigures {
            usage_nanoseconds: one,
            user_nanoseconds: one,
            system_nanoseconds: one,
            periods: one,
            throttled_periods: one,
            throttled_nanoseconds: one,
            burst_periods: one,
            burst_nanoseconds: one,
        },
        memory: MemoryFigures {
            usage: one,
            max_usage: one,
            failures: one,
            kernel: one,
            cache: one,
            rss: one,
            swap: one,
            mapped_file: one,
            active_file: one,
            inactive_file: one,
            page_faults: one,
            page_faults_below: one,
            major_page_faults: one,
            major_page_faults_below: one,
            oom_kills: one,
            dirty: one,
            writeback: one,
            high_events: one,
            max_events: one,
            scanned_pages: one,
            stolen_pages: one,
            refaults_file: one,
            refaults_anon: one,
        },
        io: vec![DeviceIo {
            device: (8, 0),
            bytes: amounts,
            operations: amounts,
        }],
        tasks: TaskFigures {
            threads: one,
            threads_max: one,
            processes: vec![17],
        },
        limits: GroupLimits {
            cpu_shares: one,
            cpu_quota_us: one,
            cpu_period_us: one,
            memory_bytes: one,
            swap_bytes: one,
            memory_reservation_bytes: one,
        },
        pressure: PressureFigures {
            cpu: pressure,
            memory: pressure,
            io: pressure,
        },
        made_at_seconds: Some(1),
    };
    let mut group = group(RowKind::Container, "/g");
    "a".clone_into(&mut group.image);
    Row {
        files: OpenFiles {
            descriptors: one,
            sockets: one,
        },
        open_file_limit: one,
        ..row(group, figures)
    }
}

#[test]
fn families_of_cadvisor_are_upstreams() {
    let mut reading = reading();
    reading.rows.truncate(2);
    reading.rows.push(whole());
    let machine = Machine {
        cpus: 2,
        memory_bytes: 1,
        ..Machine::default()
    };
    let processors = Processors { cores: 1, sockets: 1 };
    let found = compare("cadvisor", &rendered(Some(&reading), &machine, processors));
    all_are_there("cadvisor", &found);
}

#[test]
fn cadvisor_page_without_a_reading_has_the_machine() {
    let text = rendered(None, &Machine::observe(), Processors::observe());
    assert!(text.contains("container_scrape_error 1\n") && text.contains("\nmachine_cpu_cores{"));
    assert!(text.contains("\nmachine_cpu_sockets{"));
    assert!(!text.contains("container_last_seen"));
}

#[test]
fn cadvisor_page_is_made_once_of_a_reading() {
    let (reading, machine) = (reading(), Machine::observe());
    let one = page(Some(&reading), &machine);
    assert_eq!(one.as_ptr(), page(Some(&reading), &machine).as_ptr());
}

#[test]
fn cadvisor_labels_are_cut() {
    let mut reading = reading();
    reading.rows[1].group.image = "ü".repeat(700_000);
    let text = rendered(Some(&reading), &Machine::default(), Processors::default());
    assert!(text.contains(&format!("image=\"{}\"", "ü".repeat(256))));
    reading.rows[1].group.image = "a".repeat(255) + "ü" + &"ü".repeat(200);
    let text = rendered(Some(&reading), &Machine::default(), Processors::default());
    assert!(text.lines().all(|line| line.len() < 2_048));
}
