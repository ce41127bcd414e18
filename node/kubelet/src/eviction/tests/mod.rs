//! Upstream's tables: `helpers_test.go` and `eviction_manager_test.go`.

mod levels;
mod order;
mod words;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinery_meta::Quantity;
use node_sys::fs::DiskUsage;
use serde_json::{Value, json};

use super::observations::{Observation, Observations};
use super::signal::Signal;
use super::thresholds::{EvictionThreshold, Threshold};
use super::usage::{ContainerUsage, PodUsage};

fn bytes(text: &str) -> i64 {
    text.parse::<Quantity>().unwrap().units()
}

fn disk(text: &str) -> DiskUsage {
    DiskUsage {
        bytes: u64::try_from(bytes(text)).unwrap(),
        inodes: 0,
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A pod of one container, with its priority and requests.
fn pod(name: &str, priority: i32, requests: Value) -> Arc<Pod> {
    let container = json!({"name": name, "resources": {"requests": requests}});
    let pod = json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": [container]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn of_memory(used: &str) -> PodUsage {
    PodUsage {
        memory_bytes: bytes(used),
        ..PodUsage::default()
    }
}

/// Root, logs and volumes.
fn of_disk((root, logs, volume): (&str, &str, &str)) -> PodUsage {
    PodUsage {
        containers: vec![ContainerUsage {
            root: disk(root),
            logs: disk(logs),
            ..ContainerUsage::default()
        }],
        volumes: vec![("local-volume".to_owned(), disk(volume))],
        ..PodUsage::default()
    }
}

fn threshold(signal: Signal, level: &str, seconds: u64, reclaim: Option<&str>) -> EvictionThreshold {
    let amount = |text: &str| Threshold::Amount(text.parse().unwrap());
    EvictionThreshold {
        signal,
        level: amount(level),
        grace_period: at(seconds),
        minimum_reclaim: reclaim.map(amount),
    }
}

fn observed(signal: Signal, available: &str) -> Observations {
    let observation = Observation {
        available: bytes(available),
        capacity: bytes("10Gi"),
    };
    Observations::from([(signal, observation)])
}
