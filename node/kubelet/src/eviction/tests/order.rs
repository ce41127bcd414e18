//! The order in which pods are evicted.

use node_sys::fs::DiskUsage;
use serde_json::json;

use super::{of_disk, of_memory, pod};
use crate::eviction::ranking::{Candidate, FilesOf, rank};
use crate::eviction::signal::Signal;
use crate::eviction::usage::{ContainerUsage, PodUsage};

const ALL_FILES: FilesOf = FilesOf {
    root: true,
    logs: true,
    volumes: true,
};

fn names(candidates: &[Candidate]) -> Vec<&str> {
    let pods = candidates.iter().map(|own| own.pod.as_ref());
    pods.map(crate::pods::name).collect()
}

/// Name, priority, request and usage of pods, in the order in which they are evicted.
#[track_caller]
fn check_rank<U: Copy>(
    signal: Signal,
    resource: &str,
    expected: &[(&str, i32, &str, U)],
    usage: impl Fn(U) -> PodUsage,
) {
    let mut candidates: Vec<Candidate> = expected
        .iter()
        .rev()
        .map(|(name, priority, request, used)| {
            let requests = match *request {
                "" => json!({}),
                amount => json!({resource: amount}),
            };
            Candidate {
                pod: pod(name, *priority, requests),
                usage: Some(usage(*used)),
            }
        })
        .collect();
    rank(&mut candidates, signal, ALL_FILES);
    let expected: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names(&candidates), expected);
}

#[test]
fn eviction_order_for_memory_is_upstreams() {
    // `TestOrderedByExceedsRequestMemory`, `TestOrderedByMemory`, `TestOrderedByPriorityMemory`.
    let memory = Signal::MemoryAvailable;
    check_rank(
        memory,
        "memory",
        &[("exceeds", 1, "100Mi", "101Mi"), ("below", -1, "200Mi", "199Mi")],
        of_memory,
    );
    check_rank(
        memory,
        "memory",
        &[
            ("burstable-high", 0, "100Mi", "800Mi"),
            ("best-effort-high", 0, "", "500Mi"),
            ("best-effort-low", 0, "", "300Mi"),
            ("burstable-low", 0, "100Mi", "300Mi"),
            ("guaranteed-high", 0, "1Gi", "800Mi"),
            ("guaranteed-low", 0, "1Gi", "200Mi"),
        ],
        of_memory,
    );
    check_rank(
        memory,
        "memory",
        &[
            ("above-low-high", -1, "", "500Mi"),
            ("above-low-low", -1, "", "50Mi"),
            ("above-high-high", 1, "100Mi", "600Mi"),
            ("above-high-low", 1, "100Mi", "150Mi"),
            ("below-low-high", -1, "1Gi", "800Mi"),
            ("below-low-low", -1, "1Gi", "200Mi"),
            ("below-high-high", 1, "1Gi", "800Mi"),
            ("below-high-low", 1, "1Gi", "200Mi"),
        ],
        of_memory,
    );
}

#[test]
fn eviction_order_for_disks_is_upstreams() {
    // `TestOrderedByExceedsRequestDisk`, `TestOrderedbyDisk`, `TestOrderedByPriorityDisk`.
    let (nodefs, storage) = (Signal::NodeFsAvailable, "ephemeral-storage");
    check_rank(
        nodefs,
        storage,
        &[
            ("exceeds", 1, "100Mi", ("90Mi", "11Mi", "0")),
            ("below", -1, "200Mi", ("100Mi", "99Mi", "0")),
        ],
        of_disk,
    );
    check_rank(
        nodefs,
        storage,
        &[
            ("best-effort-high", 0, "", ("50Mi", "100Mi", "150Mi")),
            ("burstable-high", 0, "100Mi", ("150Mi", "150Mi", "50Mi")),
            ("best-effort-low", 0, "", ("25Mi", "25Mi", "50Mi")),
            ("burstable-low", 0, "100Mi", ("25Mi", "35Mi", "50Mi")),
            ("guaranteed-high", 0, "400Mi", ("225Mi", "100Mi", "50Mi")),
            ("guaranteed-low", 0, "400Mi", ("25Mi", "45Mi", "50Mi")),
        ],
        of_disk,
    );
    check_rank(
        nodefs,
        storage,
        &[
            ("above-low-high", -1, "", ("200Mi", "100Mi", "200Mi")),
            ("above-low-low", -1, "", ("10Mi", "10Mi", "30Mi")),
            ("above-high-high", 1, "100Mi", ("200Mi", "150Mi", "250Mi")),
            ("above-high-low", 1, "100Mi", ("90Mi", "50Mi", "10Mi")),
            ("below-low-high", -1, "1Gi", ("500Mi", "200Mi", "100Mi")),
            ("below-low-low", -1, "1Gi", ("50Mi", "100Mi", "50Mi")),
            ("below-high-high", 1, "1Gi", ("250Mi", "500Mi", "50Mi")),
            ("below-high-low", 1, "1Gi", ("100Mi", "60Mi", "40Mi")),
        ],
        of_disk,
    );
}

#[test]
fn eviction_order_for_inodes_and_process_ids_is_upstreams() {
    // `TestOrderedbyInodes`, `TestOrderedByPriorityInodes`, `TestOrderedByPriorityProcess`.
    let inodes = |(root, logs, volume): (u64, u64, u64)| {
        let of = |inodes| DiskUsage { bytes: 0, inodes };
        PodUsage {
            containers: vec![ContainerUsage {
                root: of(root),
                logs: of(logs),
                ..ContainerUsage::default()
            }],
            volumes: vec![("local-volume".to_owned(), of(volume))],
            ..PodUsage::default()
        }
    };
    check_rank(
        Signal::NodeFsInodesFree,
        "",
        &[
            ("high", 0, "", (200_000, 150_000, 50_000)),
            ("medium", 0, "", (100_000, 150_000, 50_000)),
            ("low", 0, "", (50_000, 100_000, 50_000)),
        ],
        inodes,
    );
    check_rank(
        Signal::NodeFsInodesFree,
        "",
        &[
            ("low-high", -1, "", (50_000, 100_000, 250_000)),
            ("low-low", -1, "", (60_000, 30_000, 10_000)),
            ("high-high", 1, "", (150_000, 150_000, 50_000)),
            ("high-low", 1, "", (10_000, 40_000, 100_000)),
        ],
        inodes,
    );
    let tasks = |tasks: u64| PodUsage {
        tasks,
        ..PodUsage::default()
    };
    check_rank(
        Signal::PidAvailable,
        "",
        &[
            ("low-high", -1, "", 20),
            ("low-low", -1, "", 6),
            ("high-high", 1, "", 20),
            ("high-low", 1, "", 5),
        ],
        tasks,
    );
}

/// `TestStatsNotFoundForPod`.
#[test]
fn pods_whose_usage_is_not_known_are_evicted_first() {
    for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable] {
        let known = Candidate {
            pod: pod("known", -1, json!({})),
            usage: Some(of_memory("1Gi")),
        };
        let unknown = Candidate {
            pod: pod("unknown", 1, json!({"memory": "1Gi"})),
            usage: None,
        };
        let mut candidates = [known, unknown];
        rank(&mut candidates, signal, ALL_FILES);
        assert_eq!(names(&candidates), ["unknown", "known"]);
    }
}

#[test]
fn files_that_count_are_those_on_the_disk_that_is_short() {
    let files = |signal, dedicated| {
        let files = FilesOf::signal(signal, dedicated);
        (files.root, files.logs, files.volumes)
    };
    for signal in [Signal::NodeFsAvailable, Signal::ImageFsInodesFree] {
        assert_eq!(files(signal, false), (true, true, true));
    }
    assert_eq!(files(Signal::NodeFsInodesFree, true), (false, true, true));
    assert_eq!(files(Signal::ImageFsAvailable, true), (true, false, false));
}
