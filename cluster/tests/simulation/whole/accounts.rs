//! Ends of pods of Jobs, and what the Jobs say of them: failures counted are failures that happened, each once.

use crate::model::{Change, ObjectVersion, ReferenceModel};
use machinery_meta::Uid;
use std::collections::{BTreeMap, BTreeSet};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Ends of one Job's pods while they were tracked.
#[derive(Default)]
struct Ends {
    succeeded: BTreeSet<Uid>,
    indexes: BTreeSet<String>,
    failed: BTreeSet<Uid>,
    counted: (i64, i64),
}

#[derive(Default)]
pub(super) struct Accounts {
    jobs: BTreeMap<Uid, Ends>,
}

pub(super) fn is_tracked(pod: &ObjectVersion) -> bool {
    pod.finalizers.iter().any(|own| &**own == TRACKING)
}

pub(super) fn is_finished(job: &ObjectVersion) -> bool {
    job.condition("Complete") == "True" || job.condition("Failed") == "True"
}

/// A Job that fails counts all that were at work.
fn fails(job: &ObjectVersion) -> bool {
    job.condition("Failed") == "True" || job.condition("FailureTarget") == "True"
}

impl Accounts {
    pub(super) fn check(&mut self, change: &Change) -> Result<(), String> {
        let Some(own) = &change.after else { return Ok(()) };
        match own.kind.as_str() {
            "Pod" if is_tracked(own) => {
                self.note(own);
                Ok(())
            }
            "Job" => self.check_counts(own),
            _ => Ok(()),
        }
    }

    fn note(&mut self, pod: &ObjectVersion) {
        let Some(owner) = pod.controller().filter(|owner| &*owner.kind == "Job") else {
            return;
        };
        let ends = self.jobs.entry(owner.uid.clone()).or_default();
        match pod.text("/status/phase") {
            "Succeeded" => {
                ends.indexes.extend(pod.label(INDEX).map(str::to_owned));
                ends.succeeded.insert(pod.uid.clone());
            }
            "Failed" => drop(ends.failed.insert(pod.uid.clone())),
            _ if pod.is_deleting() => drop(ends.failed.insert(pod.uid.clone())),
            _ => {}
        }
    }

    fn check_counts(&mut self, job: &ObjectVersion) -> Result<(), String> {
        let ends = self.jobs.entry(job.uid.clone()).or_default();
        let list = |name: &str| job.list(&format!("/status/uncountedTerminatedPods/{name}")).len() as i64;
        let counted = (job.number("/status/succeeded"), job.number("/status/failed"));
        let is_indexed = job.text("/spec/completionMode") == "Indexed";
        let (succeeded, failed) = match is_indexed {
            true => (counted.0, counted.1 + list("failed")),
            false => (counted.0 + list("succeeded"), counted.1 + list("failed")),
        };
        let most = if is_indexed {
            ends.indexes.len()
        } else {
            ends.succeeded.len()
        };
        if succeeded > most as i64 {
            return Err(format!("{succeeded} successes counted of {most}"));
        }
        if failed > ends.failed.len() as i64 && !fails(job) {
            return Err(format!("{failed} failures counted of {}", ends.failed.len()));
        }
        if counted.0 < ends.counted.0 && !is_indexed || counted.1 < ends.counted.1 {
            return Err(format!("{counted:?} counted, {:?} before", ends.counted));
        }
        ends.counted = counted;
        Ok(())
    }

    /// Every end was counted once.
    pub(super) fn check_all(&self, model: &ReferenceModel) -> Result<(), String> {
        for job in model
            .all("Job")
            .filter(|job| !fails(job) && job.text("/spec/completionMode") != "Indexed")
        {
            let Some(ends) = self.jobs.get(&job.uid) else {
                continue;
            };
            let happened = ends.succeeded.union(&ends.failed).count() as i64;
            let counted = job.number("/status/succeeded") + job.number("/status/failed");
            if counted != happened {
                return Err(format!(
                    "{}: {counted} ends counted of {happened}: {}",
                    job.key,
                    job.value()["status"]
                ));
            }
        }
        Ok(())
    }
}
