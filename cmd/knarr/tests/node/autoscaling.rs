//! Usage of pods is shown by kubectl, and a Deployment gets the size that its load requests.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use serde_json::{Value, json};

pub(crate) fn a_deployment_grows_with_its_load(cluster: &Cluster) {
    let story = cluster.namespace("autoscaling");
    let container = json!({
        "name": "main", "image": TOOLS, "imagePullPolicy": "IfNotPresent",
        // As much as it may.
        "command": ["sh", "-c", "while :; do :; done"],
        "resources": {"requests": {"cpu": "20m", "memory": "8Mi"}, "limits": {"cpu": "60m"}},
    });
    let labels = json!({"app": "busy"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }},
    });
    story.feed(&["apply"], &deployment.to_string());
    story.wait("deployment/busy", "condition=Available");
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "busy"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
            "minReplicas": 1, "maxReplicas": 2,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    });
    story.feed(&["apply"], &autoscaler.to_string());
    story.wait_value("hpa/busy", "{.status.desiredReplicas}", "2");
    story.wait_value("deployment/busy", "{.status.replicas}", "2");
    let shown: Value =
        serde_json::from_str(&story.kubectl(&["get", "hpa", "busy", "-o", "json"])).expect("JSON");
    let conditions = shown["status"]["conditions"].as_array().expect("conditions");
    for kind in ["AbleToScale", "ScalingActive"] {
        let of_kind = |own: &&Value| own["type"] == kind;
        let condition = conditions.iter().find(of_kind).expect("the condition");
        assert_eq!(condition["status"], "True", "{condition}");
    }
    let current = &shown["status"]["currentMetrics"][0]["resource"];
    assert_eq!(current["name"], "cpu", "{shown}");
    let rescaled = "New size: 2; reason: cpu resource utilization (percentage of request) above target";
    story.until("an event of the new size", || {
        let events = ["get", "events", "--field-selector", "reason=SuccessfulRescale"];
        story.kubectl(&events).contains(rescaled)
    });
    // The pods that the autoscaler measured are those that kubectl shows.
    let top = story.kubectl(&["top", "pods", "--containers", "--no-headers", "-l", "app=busy"]);
    let first = top.lines().next().expect("a line");
    let columns: Vec<&str> = first.split_whitespace().collect();
    let [pod, name, cpu, memory] = columns[..] else {
        panic!("{top}")
    };
    assert!(pod.starts_with("busy-") && name == "main", "{top}");
    assert!(cpu.ends_with('m') && memory.ends_with("Mi"), "{top}");
    let nodes = story.kubectl(&["top", "nodes", "--no-headers"]);
    assert_eq!(nodes.lines().count(), 1, "{nodes}");
    let raw = story.kubectl(&["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"]);
    let raw: Value = serde_json::from_str(&raw).expect("JSON");
    assert_eq!(raw["kind"], "NodeMetricsList", "{raw}");
    let table = story.kubectl(&["get", "pods.metrics.k8s.io"]);
    assert!(table.contains("CPU") && table.contains("busy-"), "{table}");
}
