//! What a rule matches, and when one set of rules covers another.

use crate::authz::Attributes;
use crate::authz::attributes::{ResourceTarget, Target};
use serde::{Deserialize, Serialize};

const ALL: &str = "*";

/// `rbac.authorization.k8s.io` `PolicyRule`, with upstream's field names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default())
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|own| own == ALL || own == value)
}

impl PolicyRule {
    /// Whether this rule permits the request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                Target::Resource(target) => self.matches_resource(target),
                Target::Path(path) => self.non_resource_urls.iter().any(|url| matches_path(url, path)),
            }
    }

    fn matches_resource(&self, target: &ResourceTarget<'_>) -> bool {
        has(&self.api_groups, target.group)
            && self
                .resources
                .iter()
                .any(|own| matches_name(own, target.resource, target.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|own| own == target.name))
    }

    /// The rule split into rules of one verb, group, resource (and name) each, as upstream compares them.
    pub fn break_down(&self) -> Vec<Self> {
        let mut simple = Vec::new();
        for verb in &self.verbs {
            for (group, resource) in pairs(&self.api_groups, &self.resources) {
                let one = Self {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..Self::default()
                };
                if self.resource_names.is_empty() {
                    simple.push(one);
                } else {
                    simple.extend(self.resource_names.iter().map(|name| Self {
                        resource_names: vec![name.clone()],
                        ..one.clone()
                    }));
                }
            }
            simple.extend(self.non_resource_urls.iter().map(|url| Self {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Self::default()
            }));
        }
        simple
    }

    /// Whether this rule alone gives everything a simple rule gives.
    fn covers(&self, simple: &Self) -> bool {
        let all = |own: &[String], asked: &[String]| asked.iter().all(|value| has(own, value));
        let resources = simple.resources.iter().all(|asked| {
            let (resource, subresource) = asked.split_once('/').unwrap_or((asked, ""));
            self.resources
                .iter()
                .any(|own| own == asked || matches_name(own, resource, subresource))
        });
        let names = self.resource_names.is_empty()
            || (!simple.resource_names.is_empty()
                && simple
                    .resource_names
                    .iter()
                    .all(|name| self.resource_names.contains(name)));
        let urls = simple.non_resource_urls.iter().all(|asked| {
            self.non_resource_urls
                .iter()
                .any(|own| own == asked || matches_path(own, asked))
        });
        all(&self.verbs, &simple.verbs)
            && all(&self.api_groups, &simple.api_groups)
            && resources
            && names
            && urls
    }
}

fn pairs<'a>(a: &'a [String], b: &'a [String]) -> impl Iterator<Item = (&'a String, &'a String)> {
    a.iter().flat_map(move |x| b.iter().map(move |y| (x, y)))
}

/// `*`, `pods`, `pods/log` or `*/scale` against a resource and its subresource.
fn matches_name(own: &str, resource: &str, subresource: &str) -> bool {
    if own == ALL {
        return true;
    }
    match own.split_once('/') {
        None => subresource.is_empty() && own == resource,
        Some((own_resource, own_subresource)) => {
            !subresource.is_empty()
                && own_subresource == subresource
                && (own_resource == ALL || own_resource == resource)
        }
    }
}

fn matches_path(own: &str, path: &str) -> bool {
    own == path || (own.ends_with(ALL) && path.starts_with(own.trim_end_matches('*')))
}

/// The simple rules of `asked` that nothing in `held` covers.
pub fn uncovered(held: &[PolicyRule], asked: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing: Vec<PolicyRule> = Vec::new();
    for simple in asked.iter().flat_map(PolicyRule::break_down) {
        if !held.iter().any(|rule| rule.covers(&simple)) && !missing.contains(&simple) {
            missing.push(simple);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;

    fn list(text: &str) -> Vec<String> {
        text.split_whitespace()
            .map(|word| {
                if word == "''" {
                    String::new()
                } else {
                    word.to_owned()
                }
            })
            .collect()
    }

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> PolicyRule {
        PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn a_rule_matches_as_upstreams() {
        let user = UserInfo::default();
        let cases = [
            (rule("get", "''", "pods", ""), "get", "", "pods", "", "x", true),
            (rule("get", "''", "pods", ""), "list", "", "pods", "", "", false),
            (
                rule("get", "''", "pods", ""),
                "get",
                "",
                "pods",
                "log",
                "x",
                false,
            ),
            (
                rule("get", "''", "pods/log", ""),
                "get",
                "",
                "pods",
                "log",
                "x",
                true,
            ),
            (
                rule("*", "*", "*", ""),
                "get",
                "apps",
                "deployments",
                "scale",
                "x",
                true,
            ),
            (
                rule("get", "*", "*/scale", ""),
                "get",
                "apps",
                "deployments",
                "scale",
                "x",
                true,
            ),
            (
                rule("get", "*", "*/scale", ""),
                "get",
                "apps",
                "deployments",
                "",
                "x",
                false,
            ),
            (
                rule("get", "''", "secrets", "a b"),
                "get",
                "",
                "secrets",
                "",
                "b",
                true,
            ),
            (
                rule("get", "''", "secrets", "a b"),
                "get",
                "",
                "secrets",
                "",
                "c",
                false,
            ),
            (
                rule("get", "''", "secrets", "a"),
                "get",
                "",
                "secrets",
                "",
                "",
                false,
            ),
        ];
        for (rule, verb, group, resource, subresource, name, expected) in cases {
            let target = ResourceTarget {
                group,
                resource,
                subresource,
                name,
                ..ResourceTarget::default()
            };
            let attributes = Attributes {
                user: &user,
                verb,
                target: Target::Resource(target),
            };
            assert_eq!(rule.allows(&attributes), expected, "{rule:?} {attributes:?}");
        }
    }

    #[test]
    fn paths_match_by_prefix() {
        for (own, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/api*", "/apis", true),
            ("*", "/metrics", true),
        ] {
            assert_eq!(matches_path(own, path), expected, "{own} {path}");
        }
    }

    #[derive(Deserialize)]
    struct Coverage {
        name: String,
        held: Vec<PolicyRule>,
        asked: Vec<PolicyRule>,
        #[serde(default)]
        missing: Vec<PolicyRule>,
    }

    #[test]
    fn coverage_is_upstreams() {
        let table: Vec<Coverage> = crate::testing::yaml(include_str!("../../../testdata/rbac/covers.yaml"));
        for case in table {
            assert_eq!(uncovered(&case.held, &case.asked), case.missing, "{}", case.name);
        }
    }

    #[derive(Deserialize)]
    struct PathCase {
        own: String,
        asked: String,
        covers: bool,
    }

    #[test]
    fn path_coverage_is_upstreams() {
        let table: Vec<PathCase> = crate::testing::yaml(include_str!("../../../testdata/rbac/paths.yaml"));
        for PathCase { own, asked, covers } in table {
            assert_eq!(matches_path(&own, &asked), covers, "{own} {asked}");
        }
    }
}
