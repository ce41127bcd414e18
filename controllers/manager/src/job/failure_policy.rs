//! Verdict of a Job's failure policy on a pod that failed. Pure.

use crate::views::PodView;
use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyRule};
use machinery_client::Object;

/// The verdict on one failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts towards the limit.
    Count,
    /// It does not.
    Ignore,
    /// The Job has failed, for this reason.
    FailJob(String),
    /// The pod's index has failed.
    FailIndex,
}

/// The verdict of the first rule that matches, and its action; without one the failure counts.
pub(super) fn judge(
    policy: Option<&PodFailurePolicy>,
    pod: &Object<PodView>,
) -> (Verdict, Option<&'static str>) {
    let rules = policy.map_or(&[][..], |policy| &policy.rules);
    for (at, rule) in rules.iter().enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => (Verdict::Ignore, Some("Ignore")),
            "FailIndex" => (Verdict::FailIndex, Some("FailIndex")),
            "FailJob" => {
                let why = format!("{why} matching FailJob rule at index {at}");
                (Verdict::FailJob(why), Some("FailJob"))
            }
            "Count" => (Verdict::Count, Some("Count")),
            // A rule of a later release says nothing.
            _ => continue,
        };
    }
    (Verdict::Count, None)
}

fn matches(rule: &PodFailurePolicyRule, pod: &Object<PodView>) -> Option<String> {
    let ending = pod.ending.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let named = |name: &str| codes.container_name.as_deref().is_none_or(|own| own == name);
        let meets = |code: i32| match codes.operator.as_str() {
            "In" => codes.values.contains(&code),
            "NotIn" => !codes.values.contains(&code),
            _ => false,
        };
        let hit = ending
            .exit_codes
            .iter()
            .find(|(name, code)| named(name) && meets(*code));
        return hit.map(|(name, code)| {
            format!(
                "Container {name} for pod {} failed with exit code {code}",
                pod.key()
            )
        });
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let hit = ending.conditions.iter().find(|(kind, status)| {
        patterns
            .iter()
            .any(|own| **kind == *own.type_ && **status == *own.status.as_deref().unwrap_or("True"))
    });
    hit.map(|(kind, _)| format!("Pod {} has condition {kind}", pod.key()))
}
