//! Kinds that a policy is for, as far as its rules name them (upstream's `typesToCheck`).

use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, ValidatingAdmissionPolicySpec};
use machinery_client::discovery::DiscoveredResource;
use machinery_client::{Client, ClientError};
use machinery_meta::GroupVersionKind;
use std::collections::BTreeSet;

/// Kinds that are checked.
const MAX_KINDS: usize = 10;

/// The kinds of a policy's rules, in order.
pub(super) async fn kinds_of(
    client: &Client,
    spec: &ValidatingAdmissionPolicySpec,
) -> Result<Vec<GroupVersionKind>, ClientError> {
    let rules = spec
        .match_constraints
        .as_ref()
        .and_then(|own| own.resource_rules.as_ref());
    let rules = rules.map_or(&[][..], Vec::as_slice);
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    Ok(named(rules, &client.discover().await?.resources))
}

/// The names of a list, in order; none where one of them stands for several.
fn names(list: Option<&Vec<String>>) -> Vec<&str> {
    let all: BTreeSet<&str> = list.into_iter().flatten().map(String::as_str).collect();
    match all.iter().any(|own| own.contains('*')) {
        true => Vec::new(),
        false => all.into_iter().collect(),
    }
}

fn named(rules: &[NamedRuleWithOperations], served: &[DiscoveredResource]) -> Vec<GroupVersionKind> {
    let mut found = BTreeSet::new();
    for rule in rules {
        let resources: BTreeSet<&str> = rule
            .resources
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|own| !own.contains(['*', '/']))
            .collect();
        for group in names(rule.api_groups.as_ref()) {
            for version in names(rule.api_versions.as_ref()) {
                for resource in &resources {
                    let is_it = |own: &&DiscoveredResource| {
                        let own = &own.resource;
                        own.group == group && own.version == version && own.plural == *resource
                    };
                    if let Some(own) = served.iter().find(is_it) {
                        found.insert((
                            group.to_owned(),
                            version.to_owned(),
                            own.resource.kind.to_string(),
                        ));
                    }
                    if found.len() == MAX_KINDS {
                        return sorted(found);
                    }
                }
            }
        }
    }
    sorted(found)
}

fn sorted(found: BTreeSet<(String, String, String)>) -> Vec<GroupVersionKind> {
    let kind =
        |(group, version, kind): (String, String, String)| GroupVersionKind::new(&group, &version, &kind);
    found.into_iter().map(kind).collect()
}
