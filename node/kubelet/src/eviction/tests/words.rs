//! Messages, rejections and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{bytes, disk, observed, of_disk, of_memory, pod, threshold};
use crate::eviction::admission;
use crate::eviction::local_storage::exceeded;
use crate::eviction::message::message;
use crate::eviction::metrics::EvictionMetrics;
use crate::eviction::observations::{Observation, Observations};
use crate::eviction::signal::{Signal, Starved};
use crate::eviction::usage::{ContainerUsage, PodUsage};
use crate::node::pressure::Pressure;

/// `TestMemoryPressure_VerifyPodStatus` and its likes, and `TestEvictionMessage`.
#[test]
fn messages_of_evictions_are_upstreams() {
    let text = |resource, level: &str, observations: &Observations, usage: Option<&PodUsage>, pod: &Pod| {
        let signal = *observations.keys().next().unwrap();
        message(
            resource,
            pod,
            usage,
            &[threshold(signal, level, 0, None)],
            observations,
        )
    };
    let plain = pod("above-requests", 0, json!({"memory": "100Mi"}));
    let memory = observed(Signal::MemoryAvailable, "1500Mi");
    assert_eq!(
        text(Starved::Memory, "2Gi", &memory, None, &plain).text,
        "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. "
    );
    let pids = Observations::from([(
        Signal::PidAvailable,
        Observation {
            available: 500,
            capacity: 1000,
        },
    )]);
    assert_eq!(
        text(Starved::Pids, "1200", &pids, None, &plain).text,
        "The node was low on resource: pids. Threshold quantity: 1200, available: 500. "
    );
    let usage = PodUsage {
        containers: vec![ContainerUsage {
            name: "above-requests".to_owned(),
            memory_bytes: Some(bytes("150Mi")),
            root: disk("40Mi"),
            logs: disk("60Mi"),
        }],
        ..of_memory("150Mi")
    };
    let own = text(Starved::Memory, "2Gi", &memory, Some(&usage), &plain);
    assert!(own.text.ends_with(
        "available: 1500Mi. Container above-requests was using 150Mi, request is 100Mi, has larger consumption of memory. "
    ));
    let annotations = [
        ("offending_containers", "above-requests"),
        ("offending_containers_usage", "150Mi"),
        ("starved_resource", "memory"),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(own.annotations, BTreeMap::from(annotations));
    let storage = observed(Signal::NodeFsAvailable, "1536Mi");
    let own = text(Starved::Storage, "2Gi", &storage, Some(&usage), &plain);
    assert_eq!(
        own.text,
        "The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, available: 1536Mi. Container \
         above-requests was using 100Mi, request is 0, has larger consumption of ephemeral-storage. "
    );
}

#[test]
fn messages_name_the_containers_above_their_requests() {
    let container = |name: &str, request: &str| match request {
        "" => json!({"name": name}),
        request => json!({"name": name, "resources": {"requests": {"memory": request}}}),
    };
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
        "resources": {"requests": {"memory": "250Mi"}},
        "initContainers": [container("init", "100Mi"), container("sidecar", "")],
        "containers": [container("main", "200Mi"), container("below", "300Mi")],
        "ephemeralContainers": [{"name": "debug"}],
    }}))
    .unwrap();
    let used = [
        ("sidecar", "250Mi"),
        ("main", "250Mi"),
        ("below", "250Mi"),
        ("debug", "1Gi"),
        ("gone", "1Gi"),
    ];
    let containers = used.map(|(name, used)| ContainerUsage {
        name: name.to_owned(),
        memory_bytes: Some(bytes(used)),
        ..ContainerUsage::default()
    });
    let usage = PodUsage {
        containers: containers.into(),
        ..of_memory("600Mi")
    };
    let own = message(Starved::Memory, &pod, Some(&usage), &[], &Observations::new());
    assert_eq!(
        own.text,
        "The node was low on resource: memory. Pod p was using 600Mi, request is 250Mi, has larger consumption of memory. \
         Container sidecar was using 250Mi, request is 0, has larger consumption of memory. Container main was using \
         250Mi, request is 200Mi, has larger consumption of memory. "
    );
    assert_eq!(own.annotations["offending_containers"], "sidecar,main");
    assert_eq!(own.annotations["offending_pod_usage"], "600Mi");
}

/// `TestStorageLimitEvictions`, `TestEmptyDirLimitEviction` and
/// `TestContainerEphemeralStorageLimitEvictionForRestartableInitContainers`.
#[test]
fn pods_above_their_limits_of_local_storage_are_found() {
    let check = |spec: Value, usage: &PodUsage, expected: Option<(&str, &str)>| {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let found = exceeded(&pod, usage, false);
        let found = found.as_ref().map(|found| (found.signal, found.message.as_str()));
        assert_eq!(found, expected, "{spec}");
    };
    let limit = |amount: &str| json!({"limits": {"ephemeral-storage": amount}});
    let volume = |limit: &str, medium: &str| json!([{"name": "local-volume", "emptyDir": {"sizeLimit": limit, "medium": medium}}]);
    let usage = |name: &str, root: &str, logs: &str, volume: &str| {
        let mut usage = of_disk((root, logs, volume));
        usage.containers[0].name = name.to_owned();
        usage
    };
    let main = |root: &str, logs: &str, volume: &str| usage("main", root, logs, volume);
    let bare = json!([{"name": "main"}]);
    check(
        json!({"containers": bare, "volumes": volume("100Mi", "")}),
        &main("1Gi", "1Gi", "101Mi"),
        Some((
            "emptydirfs.limit",
            "Usage of EmptyDir volume \"local-volume\" exceeds the limit \"100Mi\". ",
        )),
    );
    for (limit, medium) in [("101Mi", ""), ("0", ""), ("1", "Memory")] {
        let spec = json!({"containers": bare, "volumes": volume(limit, medium)});
        check(spec, &main("1Gi", "1Gi", "101Mi"), None);
    }
    let containers = json!([{"name": "main", "resources": limit("1Gi")}]);
    check(
        json!({"containers": containers, "volumes": [{"name": "local-volume", "emptyDir": {}}]}),
        &main("500Mi", "500Mi", "100Mi"),
        Some((
            "ephemeralpodfs.limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        )),
    );
    check(
        json!({"containers": containers}),
        &main("500Mi", "500Mi", "24Mi"),
        None,
    );
    let two =
        json!([{"name": "main", "resources": limit("1Gi")}, {"name": "other", "resources": limit("1Gi")}]);
    check(
        json!({"containers": two}),
        &main("1Gi", "1Mi", "0"),
        Some((
            "ephemeralcontainerfs.limit",
            "Container main exceeded its local ephemeral storage limit \"1Gi\". ",
        )),
    );
    let sidecar = json!([{"name": "side", "restartPolicy": "Always", "resources": limit("50Mi")}]);
    check(
        json!({"containers": two, "initContainers": sidecar}),
        &usage("side", "51Mi", "0", "0"),
        Some((
            "ephemeralcontainerfs.limit",
            "Container side exceeded its local ephemeral storage limit \"50Mi\". ",
        )),
    );
}

/// `TestAdmitUnderNodeConditions` and `TestMemoryPressure`.
#[test]
fn pods_are_admitted_under_pressure_as_upstreams() {
    let admits = |pressure: Pressure, spec: Value| {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        admission::rejection(&pod, pressure)
    };
    let of = |memory, disk| Pressure {
        memory,
        disk,
        pid: false,
    };
    let best_effort = json!({"containers": [{"name": "c"}]});
    let burstable = json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]});
    let critical = json!({"containers": [{"name": "c"}], "priority": 2_000_000_000});
    let tolerant = json!({"containers": [{"name": "c"}],
        "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
    let of_disk = json!({"containers": [{"name": "c"}],
        "tolerations": [{"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
    let (memory, disk) = (of(true, false), of(false, true));
    for spec in [&best_effort, &burstable, &critical] {
        assert_eq!(admits(Pressure::default(), spec.clone()), None);
    }
    for (pressure, spec, admitted) in [
        (memory, &best_effort, false),
        (memory, &burstable, true),
        (memory, &critical, true),
        (memory, &tolerant, true),
        (memory, &of_disk, false),
        (disk, &best_effort, false),
        (disk, &burstable, false),
        (disk, &critical, true),
        (disk, &of_disk, false),
        (of(true, true), &burstable, false),
        (of(true, true), &tolerant, false),
    ] {
        assert_eq!(admits(pressure, spec.clone()).is_none(), admitted, "{spec}");
    }
    let both = admits(of(true, true), best_effort).unwrap();
    assert_eq!(both, "The node had condition: [MemoryPressure DiskPressure]. ");
}

#[test]
fn eviction_metrics_have_upstreams_names() {
    let mut metrics = EvictionMetrics::default();
    metrics.evicted("memory.available");
    metrics.evicted("memory.available");
    metrics.decided("memory.available", Duration::from_millis(30));
    let mut text = String::new();
    metrics.write(&mut text);
    for line in [
        "kubelet_evictions{eviction_signal=\"memory.available\"} 2",
        "kubelet_eviction_stats_age_seconds_bucket{eviction_signal=\"memory.available\",le=\"0.025\"} 0",
        "kubelet_eviction_stats_age_seconds_bucket{eviction_signal=\"memory.available\",le=\"0.05\"} 1",
        "kubelet_eviction_stats_age_seconds_bucket{eviction_signal=\"memory.available\",le=\"+Inf\"} 1",
        "kubelet_eviction_stats_age_seconds_sum{eviction_signal=\"memory.available\"} 0.03",
        "kubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} 1",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
}
