//! Prints what placing costs: `cargo run --release -p controllers-scheduler --example place [pods] [nodes]`.
//!
//! The pure core only: every pod is placed and put on its node, as the driver does before binding. Pods of one
//! deployment, pods that are all different, and pods with spread and affinity are measured one after the other.
#![allow(clippy::print_stdout, reason = "a measurement prints")]

use controllers_scheduler::algorithm::{Algorithm, Nominations};
use controllers_scheduler::attempt::Attempt;
use controllers_scheduler::nodes::NodeTable;
use controllers_scheduler::object::{Node, Pod};
use controllers_scheduler::plugins::default_plugins;
use controllers_scheduler::pod::PodInfo;
use std::sync::Arc;
use std::time::Duration;

fn node(index: usize) -> Node {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": format!("node-{index}"), "labels": {
            "kubernetes.io/hostname": format!("node-{index}"),
            "topology.kubernetes.io/zone": format!("zone-{}", index % 3)}},
        "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}}
    }))
    .expect("a literal")
}

fn pod(index: usize, kind: &str) -> serde_json::Value {
    let milli = if kind == "different" {
        10 + index % 5000
    } else {
        100
    };
    let mut spec = serde_json::json!({
        "containers": [{"name": "c", "image": "nginx",
            "resources": {"requests": {"cpu": format!("{milli}m"), "memory": "100Mi"}}}],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
    });
    let selector = serde_json::json!({"matchLabels": {"app": "a"}});
    if kind == "spread" {
        spec["topologySpreadConstraints"] = serde_json::json!([
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": selector},
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": selector}]);
    }
    if kind == "anti-affinity" {
        spec["affinity"] = serde_json::json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}}]}});
    }
    serde_json::json!({"metadata": {"name": format!("pod-{index}"), "namespace": "default",
        "uid": format!("uid-{index}"), "labels": {"app": "a"}}, "spec": spec})
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(
        text.split(' ')
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .expect("a number"),
    )
}

fn decoded(text: &[u8]) -> Arc<PodInfo> {
    let pod: Pod = serde_json::from_slice(text).expect("a literal");
    Arc::new(PodInfo::new(pod))
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (pods, nodes) = (arguments.next().unwrap_or(5000), arguments.next().unwrap_or(1000));
    for kind in ["same", "different", "spread", "anti-affinity"] {
        let texts: Vec<Vec<u8>> = (0..pods)
            .map(|index| serde_json::to_vec(&pod(index, kind)).expect("a literal"))
            .collect();
        let mut table = NodeTable::default();
        (0..nodes).for_each(|index| {
            table.set_node(&node(index));
        });
        let mut algorithm = Algorithm::new(default_plugins());
        let nominations = Nominations::default();
        let mut unplaced = 0;
        let decoding = cpu();
        texts.iter().for_each(|text| drop(decoded(text)));
        let decode = cpu() - decoding;
        let begun = cpu();
        for (index, text) in texts.iter().enumerate() {
            let pod = decoded(text);
            match algorithm.place(&Attempt::new(&pod), &mut table, &nominations, index as u64) {
                Ok(node) => {
                    let name = table.names[node].clone();
                    table.set_pod(&pod, &name);
                }
                Err(_) => unplaced += 1,
            }
        }
        let each = (cpu() - begun) / u32::try_from(pods).unwrap_or(u32::MAX);
        let decode = decode / u32::try_from(pods).unwrap_or(u32::MAX);
        println!(
            "{kind:>14}: {pods} pods on {nodes} nodes: {each:?} CPU each, {decode:?} of it decoding, {unplaced} unplaced"
        );
    }
}
