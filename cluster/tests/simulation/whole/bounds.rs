//! Sizes that owners may have, by what users requested of them: never a pod more than the newest specs allow that the
//! owner's controller may not have observed yet.

use super::workloads::SURGE;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use machinery_meta::Uid;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sizes by generation, from the one that the controller has observed.
#[derive(Default)]
pub(super) struct Bounds {
    sizes: BTreeMap<Uid, BTreeMap<i64, i64>>,
    /// Jobs do not say what they have observed: sizes with the time at which the next one came.
    jobs: BTreeMap<Uid, Vec<(i64, Duration)>>,
}

/// Pods that a node takes.
pub(super) const NODE_PODS: usize = 20;

impl Bounds {
    pub(super) fn check(
        &mut self,
        model: &ReferenceModel,
        change: &Change,
        now: Duration,
    ) -> Result<(), String> {
        if let Some(own) = &change.after {
            self.note(own, now);
        }
        if let Some(set) = change.after.as_ref().filter(|own| own.kind == "ReplicaSet") {
            let before = change.before.as_ref().map_or(0, |own| size(own));
            if size(set) > before {
                self.check_sets(model, set)?;
            }
        }
        if let Some(pod) = change.made("Pod") {
            self.check_pod(model, pod, now)?;
        }
        check_binding(model, change)
    }

    fn note(&mut self, own: &ObjectVersion, now: Duration) {
        match own.kind.as_str() {
            "ReplicaSet" | "StatefulSet" | "Deployment" => {
                let sizes = self.sizes.entry(own.uid.clone()).or_default();
                sizes.insert(own.generation, allowed(own));
                let observed = own.number("/status/observedGeneration");
                sizes.retain(|generation, _| *generation >= observed);
            }
            "Job" => {
                let sizes = self.jobs.entry(own.uid.clone()).or_default();
                if let Some(last) = sizes.last_mut() {
                    last.1 = now;
                }
                sizes.push((allowed(own), Duration::MAX));
                sizes.retain(|(_, until)| until.saturating_add(super::LAG) >= now);
            }
            _ => {}
        }
    }

    /// The most that is allowed; where the owner is not known, everything is.
    fn most(&self, owner: &ObjectVersion) -> i64 {
        let most = match self.jobs.get(&owner.uid) {
            Some(sizes) => sizes.iter().map(|(size, _)| *size).max(),
            None => self
                .sizes
                .get(&owner.uid)
                .and_then(|sizes| sizes.values().max().copied()),
        };
        most.unwrap_or(i64::MAX)
    }

    /// A set that grew: all of its Deployment together.
    fn check_sets(&self, model: &ReferenceModel, set: &ObjectVersion) -> Result<(), String> {
        let owner = set.controller().and_then(|owner| model.by_uid(&owner.uid.0));
        let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") else {
            return Ok(());
        };
        let sets = model.all("ReplicaSet").filter(|own| own.is_controlled_by(owner));
        let together: i64 = sets.map(|set| size(set)).sum();
        match together > self.most(owner) {
            true => Err(format!(
                "sets of {together} pods, {} allowed: {:?}",
                self.most(owner),
                self.sizes.get(&owner.uid)
            )),
            false => Ok(()),
        }
    }

    fn check_pod(&self, model: &ReferenceModel, pod: &ObjectVersion, now: Duration) -> Result<(), String> {
        let owner = pod.controller().and_then(|owner| model.by_uid(&owner.uid.0));
        let Some(owner) = owner else { return Ok(()) };
        let active = model.pods_of(owner).filter(|pod| pod.is_active_pod());
        if owner.kind == "DaemonSet" {
            let on_node = active.filter(|own| target(own) == target(pod)).count();
            return match on_node > 1 {
                true => Err(format!("{on_node} pods on {}", target(pod))),
                false => Ok(()),
            };
        }
        let active = active.count() as i64;
        let most = self.most(owner);
        if owner.kind == "StatefulSet" && ordinal(pod) >= most {
            return Err(format!("{most} allowed"));
        }
        match active > most {
            true => Err(format!(
                "{active} pods of {} at {now:?}, {most} allowed",
                owner.key
            )),
            false => Ok(()),
        }
    }
}

fn size(own: &ObjectVersion) -> i64 {
    own.number("/spec/replicas")
}

/// Pods that a version of a spec allows.
fn allowed(own: &ObjectVersion) -> i64 {
    match own.kind.as_str() {
        "Deployment" if own.text("/spec/strategy/type") != "Recreate" => size(own) + SURGE,
        "Job" if own.at("/spec/suspend") == Some(&true.into()) => 0,
        "Job" => own.number("/spec/parallelism"),
        _ => size(own),
    }
}

pub(super) fn ordinal(pod: &ObjectVersion) -> i64 {
    let (_, digits) = pod.name().rsplit_once('-').unwrap_or(("", ""));
    digits.parse().unwrap_or(i64::MAX)
}

/// The node that a DaemonSet's pod is for.
pub(super) fn target(pod: &ObjectVersion) -> &str {
    pod.text("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0")
}

/// A pod is bound once, to a node with room.
fn check_binding(model: &ReferenceModel, change: &Change) -> Result<(), String> {
    let Some(after) = change.after.as_ref().filter(|own| own.kind == "Pod") else {
        return Ok(());
    };
    let (before, node) = (
        change
            .before
            .as_ref()
            .map_or("", |own| own.text("/spec/nodeName")),
        after.text("/spec/nodeName"),
    );
    if !before.is_empty() && before != node {
        return Err(format!("it was on {before}"));
    }
    if !before.is_empty() || node.is_empty() {
        return Ok(());
    }
    let there = model
        .all("Pod")
        .filter(|pod| pod.text("/spec/nodeName") == node && !pod.is_ended_pod());
    match there.count() {
        count if count > NODE_PODS => Err(format!("{node} has {count} pods")),
        _ => Ok(()),
    }
}
