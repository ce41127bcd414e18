//! Objects that users of the whole cluster make.

use crate::replica_set::template;
use crate::simulated_cluster::World;
use serde_json::{Value, json};

/// A namespace with a quota; the others live in `default`.
pub(super) const TEAM: &str = "team";
pub(super) const SURGE: i64 = 1;
pub(super) const PARTITION: i64 = 1;
pub(super) const HISTORY: i64 = 2;

/// Deployments by name, and their namespaces: one rolls, one recreates, one has a quota and an autoscaler.
pub(super) const DEPLOYMENTS: [(&str, &str); 3] = [("a", "default"), ("b", "default"), ("c", TEAM)];
pub(super) const STATEFUL_SETS: [&str; 2] = ["ordered", "parallel"];

fn pod_template(app: &str, image: u64) -> Value {
    let mut template = template(&json!({"app": app}));
    template["spec"]["containers"][0]["image"] = json!(format!("i{image}"));
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "50m", "memory": "1Mi"}});
    template
}

pub(super) fn deployment(name: &str, namespace: &str) -> Value {
    let strategy = match name {
        "b" => json!({"type": "Recreate", "rollingUpdate": null}),
        _ => json!({"rollingUpdate": {"maxSurge": SURGE, "maxUnavailable": 1}}),
    };
    json!({"metadata": {"name": name, "namespace": namespace}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": pod_template(name, 0),
        "revisionHistoryLimit": HISTORY, "strategy": strategy}})
}

pub(super) fn stateful_set(name: &str) -> Value {
    let policy = if name == "ordered" {
        "OrderedReady"
    } else {
        "Parallel"
    };
    json!({"metadata": {"name": name}, "spec": {
        "replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"app": name}}, "template": pod_template(name, 0),
        "podManagementPolicy": policy, "revisionHistoryLimit": HISTORY,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": PARTITION}}}})
}

pub(super) fn daemon_set() -> Value {
    json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "template": pod_template("d", 0), "revisionHistoryLimit": HISTORY,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}})
}

fn job_spec(world: &World, app: &str) -> Value {
    let mut template = pod_template(app, 0);
    template["spec"]["restartPolicy"] = json!("Never");
    let mode = if world.once_in(2) { "Indexed" } else { "NonIndexed" };
    let mut spec = json!({"completions": 1 + world.dice(4), "parallelism": 1 + world.dice(3),
        "backoffLimit": world.dice(7), "completionMode": mode, "template": template});
    if world.once_in(4) {
        spec["ttlSecondsAfterFinished"] = json!(world.dice(200));
    }
    spec
}

pub(super) fn job(world: &World, name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": job_spec(world, name)})
}

pub(super) fn cron_job(world: &World) -> Value {
    let policy = world.pick(vec!["Allow", "Forbid", "Replace"]);
    json!({"metadata": {"name": "cron"}, "spec": {
        "schedule": "* * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": HISTORY,
        "failedJobsHistoryLimit": HISTORY, "jobTemplate": {"spec": job_spec(world, "cron")}}})
}

/// The class of the one pod that others have to go for.
pub(super) fn urgency() -> Value {
    json!({"metadata": {"name": "urgency"}, "value": 1000})
}

/// A pod that takes nearly a whole node, where others run.
pub(super) fn urgent(name: &str) -> Value {
    let mut pod = pod_template("urgent", 0);
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["priorityClassName"] = json!("urgency");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3900m", "memory": "1Mi"}});
    pod
}

pub(super) fn budget(world: &World) -> Value {
    let rule = match world.dice(2) {
        0 => json!({"minAvailable": 1 + world.dice(3), "maxUnavailable": null}),
        _ => json!({"maxUnavailable": world.dice(3), "minAvailable": null}),
    };
    let mut spec = rule;
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    json!({"metadata": {"name": "a"}, "spec": spec})
}

pub(super) fn quota(pods: u64) -> Value {
    json!({"metadata": {"name": "q", "namespace": TEAM}, "spec": {"hard": {"pods": pods.to_string()}}})
}

pub(super) fn autoscaler(least: u64, span: u64) -> Value {
    json!({"metadata": {"name": "c", "namespace": TEAM}, "spec": {
        "minReplicas": least, "maxReplicas": least + span,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "c"}}})
}

pub(super) fn service() -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}})
}
