//! Usage in the JSON of upstream's kubelet: `/stats/summary`.

use http::{Response, StatusCode};
use jiff::Timestamp;
use node_cri::v1;
use node_sys::cgroup::CgroupStats;
use serde_json::{Value, json};

use super::figures::{ContainerFigures, PodFigures, gather};
use super::response::{Body, json as answer_json, text};
use crate::managers::ManagerContext;
use crate::pods::{name, namespace, uid};

pub(super) async fn summary(context: &ManagerContext) -> Response<Body> {
    let figures = match gather(context).await {
        Ok(figures) => figures,
        Err(message) => return text(StatusCode::INTERNAL_SERVER_ERROR, message),
    };
    let now = seconds(figures.now);
    let with_volumes = |pod: &PodFigures| {
        let mut summary = pod_summary(pod, &now);
        let volumes = context.workers.csi.usage_of(uid(&pod.pod));
        if !volumes.is_empty() {
            summary["volume"] = volumes.into();
        }
        summary
    };
    let pods: Vec<Value> = figures.pods.iter().map(with_volumes).collect();
    let fs = node_sys::fs::usage(&context.config.data_dir).unwrap_or_default();
    let used = fs.capacity_bytes.saturating_sub(fs.available_bytes);
    let fs = json!({"time": now, "availableBytes": fs.available_bytes, "capacityBytes": fs.capacity_bytes,
                    "usedBytes": used, "inodesFree": fs.inodes_free, "inodes": fs.inodes});
    let mut memory = memory_json(&figures.node, &now);
    memory["availableBytes"] = node_sys::machine::memory_available_bytes().into();
    answer_json(&json!({
        "node": {"nodeName": context.config.node_name, "startTime": seconds(figures.booted_at),
                 "cpu": cpu_json(&figures.node, &now), "memory": memory, "fs": fs, "runtime": {"imageFs": fs}},
        "pods": pods,
    }))
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn cpu_json(stats: &CgroupStats, now: &str) -> Value {
    json!({"time": now, "usageCoreNanoSeconds": stats.cpu_usage_nanoseconds})
}

fn memory_json(stats: &CgroupStats, now: &str) -> Value {
    json!({"time": now, "usageBytes": stats.memory_usage_bytes, "workingSetBytes": stats.memory_working_set_bytes,
           "rssBytes": stats.memory_rss_bytes})
}

fn pod_summary(figures: &PodFigures, now: &str) -> Value {
    let (pod, used) = (&figures.pod, &figures.used);
    let containers = figures.containers.iter();
    json!({
        "podRef": {"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
        "startTime": seconds(figures.started_at),
        "containers": containers.map(|container| container_summary(container, now)).collect::<Vec<_>>(),
        "cpu": cpu_json(used, now), "memory": memory_json(used, now),
    })
}

fn container_summary(figures: &ContainerFigures, now: &str) -> Value {
    let value = |value: Option<&v1::UInt64Value>| value.map(|value| value.value);
    let cpu = figures.stats.cpu.unwrap_or_default();
    let memory = figures.stats.memory.unwrap_or_default();
    let layer = figures.stats.writable_layer.clone().unwrap_or_default();
    json!({
        "name": figures.name,
        "startTime": seconds(figures.started_at),
        "cpu": {"time": now, "usageNanoCores": value(cpu.usage_nano_cores.as_ref()).unwrap_or(0),
                "usageCoreNanoSeconds": value(cpu.usage_core_nano_seconds.as_ref())},
        "memory": {"time": now, "usageBytes": value(memory.usage_bytes.as_ref()),
                   "workingSetBytes": value(memory.working_set_bytes.as_ref()), "rssBytes": value(memory.rss_bytes.as_ref())},
        "rootfs": {"time": now, "usedBytes": value(layer.used_bytes.as_ref()), "inodesUsed": value(layer.inodes_used.as_ref())},
    })
}
