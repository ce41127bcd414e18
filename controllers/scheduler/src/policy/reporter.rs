//! Status and events of the SchedulerPolicy: which policy is in effect, and what stands in its way.

use super::Policy;
use super::object::{NAME, WantedPolicy, resource};
use machinery_client::{Client, ClientError, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference};
use machinery_runtime::{Runtime, Watched};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Pause after a status could not be written.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Status of the policy that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    uid: Box<str>,
    generation: i64,
    /// The policy in effect.
    policy: &'static str,
    ready: bool,
    reason: &'static str,
    message: String,
}

/// Facts on which it depends that a policy is in effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// The default profile is there.
    pub(crate) has_profile: bool,
    /// Nodes whose usage is known.
    pub(crate) nodes_with_usage: usize,
}

impl Report {
    pub(crate) fn new(wanted: &WantedPolicy, around: Circumstances) -> Self {
        let policy = wanted.policy.as_ref().copied().unwrap_or_default();
        let (ready, reason, message) = match &wanted.policy {
            Err(name) => {
                let message =
                    format!("policy {name:?} is not known; nodes are chosen by the scores of the profile");
                (false, "UnknownPolicy", message)
            }
            Ok(_) if !around.has_profile => {
                let message = "the scheduler has no profile named default-scheduler".to_owned();
                (false, "NoProfile", message)
            }
            Ok(policy) if policy.needs_usage() && around.nodes_with_usage == 0 => {
                let message = "live usage of no node is known yet; nodes are chosen by the requests of pods";
                (false, "UsageUnknown", message.to_owned())
            }
            Ok(policy) => {
                let message = format!("nodes are chosen by {}", policy.name());
                (true, "InEffect", message)
            }
        };
        Self {
            uid: wanted.uid.clone(),
            generation: wanted.generation,
            policy: if around.has_profile {
                policy.name()
            } else {
                Policy::Default.name()
            },
            ready,
            reason,
            message,
        }
    }

    /// The status, where it differs from that of the object.
    fn status(&self, live: &Value, now: &str) -> Option<Value> {
        let status = if self.ready { "True" } else { "False" };
        let before = live["status"]["conditions"].as_array().into_iter().flatten();
        let before = before.into_iter().find(|one| one["type"] == "Ready");
        let since = before
            .filter(|one| one["status"] == status)
            .and_then(|one| one["lastTransitionTime"].as_str());
        let condition = json!({
            "type": "Ready", "status": status, "reason": self.reason, "message": self.message,
            "observedGeneration": self.generation, "lastTransitionTime": since.unwrap_or(now)
        });
        let status = json!({
            "policy": self.policy, "observedGeneration": self.generation, "conditions": [condition]
        });
        (live["status"] != status).then(|| json!({"status": status}))
    }
}

/// Writes the reports, the last one alone where they change quickly.
pub(crate) async fn keep(client: Client, runtime: Runtime, reports: Arc<Watched<Option<Report>>>) {
    let recorder = EventRecorder::new(client.clone(), "default-scheduler");
    let mut said = None;
    loop {
        let report = reports.wait_for(|own| *own != said).await;
        if let Some(report) = &report
            && let Err(error) = write(&client, &runtime, &recorder, report).await
            && !error.is_not_found()
        {
            tracing::debug!(error = %error.chain(), "status of the scheduler policy was not written");
            runtime.sleep(TRY_AGAIN).await;
            continue;
        }
        said = report;
    }
}

async fn write(
    client: &Client,
    runtime: &Runtime,
    recorder: &EventRecorder,
    report: &Report,
) -> Result<(), ClientError> {
    let (resource, key) = (resource(), ObjectKey::cluster(NAME));
    let live: Value = client.get_as(&resource, &key).await?;
    if live["metadata"]["uid"] != *report.uid {
        return Ok(());
    }
    let now = format!("{:.0}", runtime.now());
    let Some(status) = report.status(&live, &now) else {
        return Ok(());
    };
    client
        .patch(&resource, &key, "status", &Patch::Merge, &status)
        .await?;
    let about = ObjectReference::new(&resource, &key, &report.uid);
    if report.ready {
        recorder.normal(&about, report.reason, &*report.message);
    } else {
        recorder.warning(&about, report.reason, &*report.message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(policy: Result<Policy, Box<str>>) -> WantedPolicy {
        WantedPolicy {
            policy,
            uid: "u".into(),
            generation: 2,
        }
    }

    #[track_caller]
    fn check(
        policy: Result<Policy, Box<str>>,
        has_profile: bool,
        known: usize,
        expected: (&str, bool, &str),
    ) {
        let around = Circumstances {
            has_profile,
            nodes_with_usage: known,
        };
        let report = Report::new(&wanted(policy), around);
        assert_eq!((report.policy, report.ready, report.reason), expected);
    }

    #[test]
    fn report_says_what_stands_in_the_way() {
        check(Ok(Policy::Random), true, 0, ("Random", true, "InEffect"));
        check(Ok(Policy::LeastCpu), true, 1, ("LeastCPU", true, "InEffect"));
        check(Ok(Policy::LeastCpu), true, 0, ("LeastCPU", false, "UsageUnknown"));
        check(Ok(Policy::Random), false, 0, ("Default", false, "NoProfile"));
        check(Err("Best".into()), true, 0, ("Default", false, "UnknownPolicy"));
    }

    #[test]
    fn status_is_written_where_it_differs_and_keeps_its_time() {
        let around = Circumstances {
            has_profile: true,
            nodes_with_usage: 0,
        };
        let report = Report::new(&wanted(Ok(Policy::Random)), around);
        let first = report.status(&json!({}), "t1").unwrap();
        assert_eq!(first["status"]["conditions"][0]["lastTransitionTime"], "t1");
        assert_eq!(report.status(&first, "t2"), None);
        let next = Report::new(&wanted(Ok(Policy::RoundRobin)), around)
            .status(&first, "t2")
            .unwrap();
        assert_eq!(next["status"]["policy"], "RoundRobin");
        assert_eq!(next["status"]["conditions"][0]["lastTransitionTime"], "t1");
        let failing = Report::new(&wanted(Err("Best".into())), around)
            .status(&first, "t3")
            .unwrap();
        assert_eq!(failing["status"]["conditions"][0]["lastTransitionTime"], "t3");
    }
}
