//! Figures: `/stats/summary` and `/metrics`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use node_cri::v1;
use node_sys::cgroup::CgroupStats;
use serde_json::{Value, json};

use super::routes::{Body, json as answer_json, text, with_type};
use crate::containers::resources::pod_cgroup;
use crate::managers::ManagerContext;
use crate::pods::observed::label;
use crate::pods::{name, namespace, uid};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What every container uses, by pod uid.
async fn container_stats(
    context: &ManagerContext,
) -> Result<HashMap<String, Vec<v1::ContainerStats>>, String> {
    let cri = &context.workers.control.cri;
    let answer = cri
        .list_container_stats(v1::ListContainerStatsRequest { filter: None })
        .await;
    let mut table: HashMap<String, Vec<v1::ContainerStats>> = HashMap::new();
    for stats in answer.map_err(|error| error.message())?.stats {
        let owner = stats
            .attributes
            .as_ref()
            .and_then(|attributes| attributes.labels.get(label::POD_UID))
            .cloned();
        table.entry(owner.unwrap_or_default()).or_default().push(stats);
    }
    Ok(table)
}

pub(super) async fn summary(context: &ManagerContext) -> Response<Body> {
    let by_pod = match container_stats(context).await {
        Ok(by_pod) => by_pod,
        Err(message) => return text(StatusCode::INTERNAL_SERVER_ERROR, message),
    };
    let now = context.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let pods: Vec<Value> = context
        .pods
        .list()
        .iter()
        .map(|pod| pod_summary(context, pod, &by_pod, &now))
        .collect();
    let root = context.workers.control.cgroups.stats("/");
    let fs = node_sys::fs::usage(&context.config.data_dir).unwrap_or_default();
    let used = fs.capacity_bytes.saturating_sub(fs.available_bytes);
    let fs = json!({"time": now, "availableBytes": fs.available_bytes, "capacityBytes": fs.capacity_bytes,
                    "usedBytes": used, "inodesFree": fs.inodes_free, "inodes": fs.inodes});
    let mut memory = memory_json(&root, &now);
    memory["availableBytes"] = node_sys::machine::memory_available_bytes().into();
    answer_json(&json!({
        "node": {"nodeName": context.config.node_name, "startTime": now, "cpu": cpu_json(&root, &now),
                 "memory": memory, "fs": fs, "runtime": {"imageFs": fs}},
        "pods": pods,
    }))
}

fn cpu_json(stats: &CgroupStats, now: &str) -> Value {
    json!({"time": now, "usageCoreNanoSeconds": stats.cpu_usage_nanoseconds})
}

fn memory_json(stats: &CgroupStats, now: &str) -> Value {
    json!({"time": now, "usageBytes": stats.memory_usage_bytes, "workingSetBytes": stats.memory_working_set_bytes,
           "rssBytes": stats.memory_rss_bytes})
}

fn pod_summary(
    context: &ManagerContext,
    pod: &Pod,
    by_pod: &HashMap<String, Vec<v1::ContainerStats>>,
    now: &str,
) -> Value {
    let group = pod_cgroup(&context.config.cgroup_root, pod);
    let stats = context.workers.control.cgroups.stats(&group);
    let containers: Vec<Value> = by_pod
        .get(uid(pod))
        .into_iter()
        .flatten()
        .map(|stats| container_summary(stats, now))
        .collect();
    let start = pod.status.as_ref().and_then(|status| status.start_time.clone());
    json!({
        "podRef": {"name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
        "startTime": start, "containers": containers,
        "cpu": cpu_json(&stats, now), "memory": memory_json(&stats, now),
    })
}

fn container_summary(stats: &v1::ContainerStats, now: &str) -> Value {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let value = |value: Option<&v1::UInt64Value>| value.map(|value| value.value);
    let cpu = stats.cpu.unwrap_or_default();
    let memory = stats.memory.unwrap_or_default();
    let layer = stats.writable_layer.clone().unwrap_or_default();
    json!({
        "name": attributes.labels.get(label::CONTAINER_NAME),
        "startTime": now,
        "cpu": {"time": now, "usageNanoCores": value(cpu.usage_nano_cores.as_ref()).unwrap_or(0),
                "usageCoreNanoSeconds": value(cpu.usage_core_nano_seconds.as_ref())},
        "memory": {"time": now, "usageBytes": value(memory.usage_bytes.as_ref()),
                   "workingSetBytes": value(memory.working_set_bytes.as_ref()), "rssBytes": value(memory.rss_bytes.as_ref())},
        "rootfs": {"time": now, "usedBytes": value(layer.used_bytes.as_ref()), "inodesUsed": value(layer.inodes_used.as_ref())},
    })
}

/// The agent's own figures.
pub(super) async fn metrics(context: &ManagerContext) -> Response<Body> {
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for pod in context.pods.list() {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default();
        *phases.entry(phase).or_default() += 1;
    }
    let mut out = String::new();
    out.push_str("# HELP kubelet_node_name [ALPHA] The node's name. The count is always 1.\n# TYPE kubelet_node_name gauge\n");
    let _ = writeln!(
        out,
        "kubelet_node_name{{node=\"{}\"}} 1",
        context.config.node_name
    );
    out.push_str("# HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox\n# TYPE kubelet_running_pods gauge\n");
    let _ = writeln!(
        out,
        "kubelet_running_pods {}",
        phases.get("Running").copied().unwrap_or(0)
    );
    out.push_str("# HELP kubelet_active_pods [ALPHA] The number of pods the kubelet considers active.\n# TYPE kubelet_active_pods gauge\n");
    let _ = writeln!(out, "kubelet_active_pods {}", phases.values().sum::<usize>());
    with_type(StatusCode::OK, TEXT_FORMAT, out.into())
}

/// What containers and pods use, in upstream's names.
pub(super) async fn resource_metrics(context: &ManagerContext) -> Response<Body> {
    let by_pod = match container_stats(context).await {
        Ok(by_pod) => by_pod,
        Err(message) => return text(StatusCode::INTERNAL_SERVER_ERROR, message),
    };
    let (mut cpu, mut memory) = (String::new(), String::new());
    for stats in by_pod.values().flatten() {
        let labels = stats.attributes.clone().unwrap_or_default().labels;
        let of = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let names = format!(
            "container=\"{}\",namespace=\"{}\",pod=\"{}\"",
            of(label::CONTAINER_NAME),
            of(label::POD_NAMESPACE),
            of(label::POD_NAME)
        );
        if let Some(value) = stats
            .cpu
            .as_ref()
            .and_then(|cpu| cpu.usage_core_nano_seconds.as_ref())
        {
            let _ = writeln!(
                cpu,
                "container_cpu_usage_seconds_total{{{names}}} {}",
                value.value as f64 / 1e9
            );
        }
        if let Some(value) = stats
            .memory
            .as_ref()
            .and_then(|memory| memory.working_set_bytes.as_ref())
        {
            let _ = writeln!(
                memory,
                "container_memory_working_set_bytes{{{names}}} {}",
                value.value
            );
        }
    }
    let out = format!(
        "# TYPE container_cpu_usage_seconds_total counter\n{cpu}# TYPE container_memory_working_set_bytes gauge\n{memory}"
    );
    with_type(StatusCode::OK, TEXT_FORMAT, out.into())
}
