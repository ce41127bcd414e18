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
        let of_rule: Vec<_> = kinds_of_rule(rule, served).take(MAX_KINDS).collect();
        // The first rule with as many ends the search.
        let is_full = of_rule.len() == MAX_KINDS;
        found.extend(of_rule);
        if is_full {
            break;
        }
    }
    sorted(found)
}

/// Kinds that one rule names; the empty group stands for every group, as upstream's mapper reads it.
fn kinds_of_rule<'a>(
    rule: &'a NamedRuleWithOperations,
    served: &'a [DiscoveredResource],
) -> impl Iterator<Item = (String, String, String)> + 'a {
    let all = rule.resources.iter().flatten().map(String::as_str);
    let resources: BTreeSet<&str> = all.filter(|own| !own.contains(['*', '/'])).collect();
    let versions = names(rule.api_versions.as_ref());
    names(rule.api_groups.as_ref())
        .into_iter()
        .flat_map(move |group| {
            let resources = resources.clone();
            versions.clone().into_iter().flat_map(move |version| {
                resources.clone().into_iter().flat_map(move |resource| {
                    let all = served.iter().map(|own| &own.resource);
                    let named = all.filter(move |own| {
                        (group.is_empty() || own.group == group)
                            && own.version == version
                            && own.plural == resource
                    });
                    named.map(move |own| (own.group.to_string(), version.to_owned(), own.kind.to_string()))
                })
            })
        })
}

fn sorted(found: BTreeSet<(String, String, String)>) -> Vec<GroupVersionKind> {
    let kind =
        |(group, version, kind): (String, String, String)| GroupVersionKind::new(&group, &version, &kind);
    found.into_iter().map(kind).collect()
}
