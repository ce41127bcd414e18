//! Parts missing from a stored default role or binding (upstream's `reconciliation` package), decided without reading
//! anything.

use crate::authz::rbac::coverage;
use crate::authz::rbac::{PolicyRule, RoleRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The action that completes an existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Nothing,
    /// Apply this merge patch.
    Patch(String),
    /// The binding points elsewhere, which cannot be changed: delete it and create the default.
    Replace,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    #[serde(deserialize_with = "null_is_default")]
    metadata: Metadata,
    /// Null in an aggregated role that its controller has not filled.
    #[serde(deserialize_with = "null_is_default")]
    rules: Vec<PolicyRule>,
    #[serde(deserialize_with = "null_is_default")]
    subjects: Vec<Subject>,
    role_ref: RoleRef,
    aggregation_rule: Option<AggregationRule>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct AggregationRule {
    #[serde(deserialize_with = "null_is_default")]
    cluster_role_selectors: Vec<serde_json::Value>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct Metadata {
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_default"
    )]
    labels: BTreeMap<String, String>,
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_default"
    )]
    annotations: BTreeMap<String, String>,
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, Default)]
#[serde(default, rename_all = "camelCase")]
struct Subject {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patch {
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<PolicyRule>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subjects: Option<Vec<Subject>>,
    /// Null takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregation_rule: Option<Option<AggregationRule>>,
}

/// Compares what is stored with the default. One that its annotation does not protect (`"false"`) is completed. Unreadable input changes nothing: it is not ours to overwrite.
pub fn missing(existing: &[u8], default: &str) -> Missing {
    let (Ok(existing), Ok(default)) = (
        serde_json::from_slice::<Object>(existing),
        serde_json::from_str::<Object>(default),
    ) else {
        return Missing::Nothing;
    };
    // The administrator's opt-out, `rbac.authorization.kubernetes.io/autoupdate`, comes before everything else.
    if existing.metadata.annotations.get(AUTOUPDATE).map(String::as_str) == Some("false") {
        return Missing::Nothing;
    }
    // A role reference is immutable: the binding is deleted and created again, as upstream does.
    if !default.role_ref.name.is_empty() && default.role_ref != existing.role_ref {
        return Missing::Replace;
    }
    let patch = Patch {
        rules: missing_rules(&existing, &default),
        metadata: missing_metadata(&existing.metadata, default.metadata),
        subjects: missing_subjects(existing.subjects, default.subjects),
        aggregation_rule: missing_selectors(existing.aggregation_rule, default.aggregation_rule),
    };
    match serde_json::to_string(&patch) {
        Ok(text) if text != "{}" => Missing::Patch(text),
        _ => Missing::Nothing,
    }
}

fn missing_metadata(existing: &Metadata, default: Metadata) -> Option<Metadata> {
    let lacking =
        |own: &BTreeMap<String, String>, wanted: BTreeMap<String, String>| -> BTreeMap<String, String> {
            wanted
                .into_iter()
                .filter(|(key, _)| !own.contains_key(key))
                .collect()
        };
    let labels = lacking(&existing.labels, default.labels);
    let annotations = lacking(&existing.annotations, default.annotations);
    (!labels.is_empty() || !annotations.is_empty()).then_some(Metadata { labels, annotations })
}

/// The rules as they should be, when the stored ones do not cover the default. Aggregated roles are not ours to fill.
fn missing_rules(existing: &Object, default: &Object) -> Option<Vec<PolicyRule>> {
    if default.aggregation_rule.is_some() {
        return None;
    }
    // More than can be compared is an administrator's own work.
    let held = vec![existing.rules.clone().into()];
    let lacking = coverage::missing(&held, &default.rules).ok()?.rules;
    let simple = |rule: PolicyRule| {
        let verbs = rule.verbs.clone();
        verbs.into_iter().map(move |verb| PolicyRule {
            verbs: vec![verb],
            ..rule.clone()
        })
    };
    let lacking = lacking.into_iter().flat_map(simple);
    let all: Vec<PolicyRule> = existing.rules.iter().cloned().chain(lacking).collect();
    (all.len() > existing.rules.len()).then_some(all)
}

fn missing_subjects(mut existing: Vec<Subject>, default: Vec<Subject>) -> Option<Vec<Subject>> {
    let before = existing.len();
    for subject in default {
        // Only additions: subjects and rules of an administrator's own stay.
        if !existing.contains(&subject) {
            existing.push(subject);
        }
    }
    (existing.len() > before).then_some(existing)
}

/// The rule with the selectors that it lacks, or none where there should be none.
fn missing_selectors(
    existing: Option<AggregationRule>,
    default: Option<AggregationRule>,
) -> Option<Option<AggregationRule>> {
    let Some(default) = default else {
        return existing.map(|_| None);
    };
    let mut own = existing.unwrap_or_default();
    let before = own.cluster_role_selectors.len();
    for selector in default.cluster_role_selectors {
        if !own.cluster_role_selectors.contains(&selector) {
            own.cluster_role_selectors.push(selector);
        }
    }
    (own.cluster_role_selectors.len() > before).then_some(Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: &str = r#""metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}}"#;

    #[track_caller]
    fn check(existing: &str, default: &str, expected: Missing) {
        let existing = existing.replace("AUTO", AUTO);
        assert_eq!(
            missing(existing.as_bytes(), &default.replace("AUTO", AUTO)),
            expected
        );
    }

    #[test]
    fn aggregated_role_without_rules_is_completed() {
        let aggregation = r#""aggregationRule":{"clusterRoleSelectors":[{}]}"#;
        let existing = r#"{AUTO,"rules":null,"subjects":null}"#;
        check(
            existing,
            &format!("{{AUTO,{aggregation}}}"),
            Missing::Patch(format!("{{{aggregation}}}")),
        );
    }

    #[test]
    fn bootstrap_reconcile_adds_missing_selectors_and_takes_away_what_is_no_default() {
        let selector = |name: &str| format!(r#"{{"matchLabels":{{"{name}":"true"}}}}"#);
        let role = |selectors: &[String]| {
            let selectors = selectors.join(",");
            format!(r#"{{AUTO,"aggregationRule":{{"clusterRoleSelectors":[{selectors}]}}}}"#)
        };
        let (own, ours) = (selector("own"), selector("ours"));
        let both = role(&[own.clone(), ours.clone()]);
        let completed = Missing::Patch(both.replace("AUTO,", ""));
        check(&role(&[own]), &role(std::slice::from_ref(&ours)), completed);
        check(&both, &role(std::slice::from_ref(&ours)), Missing::Nothing);
        let removed = Missing::Patch(r#"{"aggregationRule":null}"#.to_owned());
        check(&role(&[ours]), "{AUTO}", removed);
    }

    #[test]
    fn bootstrap_reconcile_adds_only_missing_rules() {
        let pods = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        let nodes = r#"{"verbs":["get"],"apiGroups":[""],"resources":["nodes"]}"#;
        let both = format!("{{AUTO,\"rules\":[{pods},{nodes}]}}");
        let one = format!("{{AUTO,\"rules\":[{pods}]}}");
        check(&both, &one, Missing::Nothing);
        check(
            &one,
            &both,
            Missing::Patch(format!("{{\"rules\":[{pods},{nodes}]}}")),
        );
        let unmarked = Missing::Patch(format!("{{{AUTO},\"rules\":[{pods},{nodes}]}}"));
        check(&one.replace("AUTO,", ""), &both, unmarked);
        let protected = one.replace("AUTO", &AUTO.replace("true", "false"));
        check(&protected, &both, Missing::Nothing);
        let bound = r#"{AUTO,"roleRef":{"kind":"ClusterRole","name":"a"},"subjects":[]}"#;
        check(bound, &bound.replace("\"a\"", "\"b\""), Missing::Replace);
        let group = r#"{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"g"}"#;
        check(
            bound,
            &bound.replace("[]", &format!("[{group}]")),
            Missing::Patch(format!("{{\"subjects\":[{group}]}}")),
        );
    }
}
