//! The whole cluster at rest: everything is as its owner wants it, says so, and nothing is left over.

use super::accounts::{is_finished, is_tracked};
use super::bounds::{ordinal, target};
use super::user::NODES;
use super::workloads::{HISTORY, PARTITION, TEAM};
use crate::model::{ObjectVersion, ReferenceModel};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn check(model: &ReferenceModel) -> Result<(), String> {
    check_nodes(model)?;
    check_leftovers(model)?;
    model
        .all("Deployment")
        .try_for_each(|own| check_deployment(model, own))?;
    model
        .all("ReplicaSet")
        .try_for_each(|own| check_replica_set(model, own))?;
    model
        .all("StatefulSet")
        .try_for_each(|own| check_stateful_set(model, own))?;
    model
        .all("DaemonSet")
        .try_for_each(|own| check_daemon_set(model, own))?;
    model.all("Job").try_for_each(|own| check_job(model, own))?;
    model
        .all("CronJob")
        .try_for_each(|own| check_cron_job(model, own))?;
    model
        .all("PodDisruptionBudget")
        .try_for_each(|own| check_budget(model, own))?;
    model
        .all("ResourceQuota")
        .try_for_each(|own| check_quota(model, own))?;
    check_endpoints(model)
}

fn none(found: Option<&Arc<ObjectVersion>>, what: &str) -> Result<(), String> {
    found.map_or(Ok(()), |own| Err(format!("{} {} {what}", own.kind, own.key)))
}

fn check_nodes(model: &ReferenceModel) -> Result<(), String> {
    let is_well =
        |node: &Arc<ObjectVersion>| node.condition("Ready") == "True" && node.list("/spec/taints").is_empty();
    let count = model.all("Node").filter(|node| is_well(node)).count() as u64;
    match count == NODES {
        true => Ok(()),
        false => Err(format!("{count} nodes are ready and without a taint")),
    }
}

/// Nothing waits for its end, and nothing outlives its owners or the one who set its finalizer.
fn check_leftovers(model: &ReferenceModel) -> Result<(), String> {
    let all = || model.everything();
    none(all().find(|own| own.is_deleting()), "waits for its end")?;
    let lives = |uid: &str| model.by_uid(uid).is_some();
    let is_left = |own: &&Arc<ObjectVersion>| {
        !own.owners.is_empty() && !own.owners.iter().any(|owner| lives(&owner.uid.0))
    };
    none(all().find(is_left), "has outlived its owners")?;
    let twice = |own: &&Arc<ObjectVersion>| own.owners.iter().filter(|owner| owner.controller).count() > 1;
    none(all().find(twice), "is owned twice")?;
    let is_held = |pod: &&Arc<ObjectVersion>| {
        let job = pod.controller().and_then(|owner| model.by_uid(&owner.uid.0));
        is_tracked(pod) && (!pod.is_active_pod() || job.is_none_or(|job| is_finished(job)))
    };
    none(model.all("Pod").find(is_held), "still has its finalizer")
}

fn says(own: &ObjectVersion, names: &[&str], wanted: i64) -> Result<(), String> {
    let said: Vec<i64> = names
        .iter()
        .map(|name| own.number(&format!("/status/{name}")))
        .collect();
    let seen = own.number("/status/observedGeneration") == own.generation;
    match seen && said.iter().all(|said| *said == wanted) {
        true => Ok(()),
        false => Err(format!(
            "{} {}: {wanted} wanted, {}",
            own.kind,
            own.key,
            own.value()["status"]
        )),
    }
}

fn image(own: &ObjectVersion) -> &str {
    own.text("/spec/template/spec/containers/0/image")
}

fn check_deployment(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let replicas = own.number("/spec/replicas");
    says(
        own,
        &[
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
        ],
        replicas,
    )?;
    let sets = || model.all("ReplicaSet").filter(|set| set.is_controlled_by(own));
    let old = |set: &&Arc<ObjectVersion>| image(set) != image(own) && set.number("/spec/replicas") != 0;
    none(sets().find(old), "is of an old template")?;
    let kept = sets().filter(|set| set.number("/spec/replicas") == 0).count() as i64;
    match kept > HISTORY + i64::from(replicas == 0) {
        true => Err(format!("{kept} old sets of {} are kept", own.key)),
        false => Ok(()),
    }
}

fn active(model: &ReferenceModel, own: &ObjectVersion) -> i64 {
    model.pods_of(own).filter(|pod| pod.is_active_pod()).count() as i64
}

fn check_replica_set(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let replicas = own.number("/spec/replicas");
    says(own, &["replicas", "readyReplicas", "availableReplicas"], replicas)?;
    match active(model, own) == replicas {
        true => Ok(()),
        false => Err(format!("{} has {} pods", own.key, active(model, own))),
    }
}

fn check_stateful_set(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let replicas = own.number("/spec/replicas");
    says(own, &["replicas", "readyReplicas", "availableReplicas"], replicas)?;
    let ordinals: BTreeSet<i64> = model.pods_of(own).map(|pod| ordinal(pod)).collect();
    if ordinals != (0..replicas).collect() {
        return Err(format!("{} has {ordinals:?}", own.key));
    }
    let update = own.text("/status/updateRevision");
    let old = |pod: &&Arc<ObjectVersion>| {
        ordinal(pod) >= PARTITION && pod.label("controller-revision-hash") != Some(update)
    };
    none(model.pods_of(own).find(old), "is of an old revision")
}

fn check_daemon_set(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let names = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
    ];
    says(own, &names, NODES as i64)?;
    let nodes: BTreeSet<&str> = model.pods_of(own).map(|pod| target(pod)).collect();
    match nodes.len() as u64 == NODES && active(model, own) == NODES as i64 {
        true => Ok(()),
        false => Err(format!("{} has {nodes:?}", own.key)),
    }
}

fn check_job(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let active = active(model, own);
    // A Job of which none may be at work waits for its user, who suspends those of CronJobs too.
    let waits = own.number("/spec/parallelism") == 0 || own.at("/spec/suspend") == Some(&true.into());
    if is_finished(own) && own.at("/spec/ttlSecondsAfterFinished").is_some() {
        return Err(format!("{} is to go by its time to live", own.key));
    }
    match (is_finished(own) || waits) && active == 0 && own.number("/status/active") == 0 {
        true => Ok(()),
        false => Err(format!(
            "{} has {active} at work: {}",
            own.key,
            own.value()["status"]
        )),
    }
}

fn check_cron_job(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let jobs = || model.all("Job").filter(|job| job.is_controlled_by(own));
    for end in ["Complete", "Failed"] {
        let kept = jobs().filter(|job| job.condition(end) == "True").count() as i64;
        if kept > HISTORY {
            return Err(format!("{kept} jobs of {} are {end}", own.key));
        }
    }
    match own.list("/status/active").is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", own.key, own.value()["status"])),
    }
}

fn check_budget(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let app = own.text("/spec/selector/matchLabels/app");
    let ready = model
        .all("Pod")
        .filter(|pod| pod.label("app") == Some(app) && pod.is_ready_pod())
        .count() as i64;
    let spare = own.number("/status/currentHealthy") - own.number("/status/desiredHealthy");
    let allowed = match own.number("/status/expectedPods") {
        0 => 0,
        _ => spare.max(0),
    };
    let seen = own.number("/status/observedGeneration") == own.generation;
    let right =
        own.number("/status/currentHealthy") == ready && own.number("/status/disruptionsAllowed") == allowed;
    match seen && right {
        true => Ok(()),
        false => Err(format!(
            "{} healthy of budget {}: {}",
            ready,
            own.key,
            own.value()["status"]
        )),
    }
}

fn check_quota(model: &ReferenceModel, own: &ObjectVersion) -> Result<(), String> {
    let pods = model
        .all("Pod")
        .filter(|pod| pod.namespace() == TEAM && !pod.is_ended_pod())
        .count();
    match own.text("/status/used/pods") == pods.to_string() {
        true => Ok(()),
        false => Err(format!(
            "{pods} pods of quota {}: {}",
            own.key,
            own.value()["status"]
        )),
    }
}

fn check_endpoints(model: &ReferenceModel) -> Result<(), String> {
    let pods = model
        .all("Pod")
        .filter(|pod| pod.label("app") == Some("a") && pod.namespace() == "default" && pod.is_ready_pod());
    let pods: BTreeSet<&str> = pods.map(|pod| pod.text("/status/podIP")).collect();
    let slices = model
        .all("EndpointSlice")
        .filter(|slice| slice.label("kubernetes.io/service-name") == Some("s"));
    let ready = slices.flat_map(|slice| slice.list("/endpoints"));
    let ready = ready.filter(|own| own["conditions"]["ready"] == true);
    let said: BTreeSet<&str> = ready.filter_map(|own| own["addresses"][0].as_str()).collect();
    let endpoints = model.get("Endpoints", "default", "s");
    let addresses = endpoints
        .into_iter()
        .flat_map(|own| own.list("/subsets"))
        .filter_map(|own| own["addresses"].as_array());
    let old: BTreeSet<&str> = addresses
        .flatten()
        .filter_map(|own: &Value| own["ip"].as_str())
        .collect();
    match said == pods && old == pods {
        true => Ok(()),
        false => Err(format!(
            "{pods:?} are ready, {said:?} in slices, {old:?} in endpoints"
        )),
    }
}
