//! Matching of requests by RBAC rules.

use crate::authz::Attributes;
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
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

/// Rules that allow everything: `*` on `*.*` and on every path.
pub(crate) fn full_authority() -> [PolicyRule; 2] {
    let all = || vec![ALL.to_owned()];
    let resources = PolicyRule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..PolicyRule::default()
    };
    let paths = PolicyRule {
        verbs: all(),
        non_resource_urls: all(),
        ..PolicyRule::default()
    };
    [resources, paths]
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|own| own == ALL || own == value)
}

impl PolicyRule {
    fn lists(&self) -> [&Vec<String>; 5] {
        let Self {
            verbs,
            api_groups,
            resources,
            resource_names,
            non_resource_urls,
        } = self;
        [verbs, api_groups, resources, resource_names, non_resource_urls]
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn footprint(&self) -> usize {
        /// A short text in a block of its own.
        const BLOCK: usize = 32;
        let texts = self.lists().into_iter().flatten();
        let texts = texts.map(|text| size_of::<String>() + BLOCK + text.len());
        size_of::<Self>() + texts.sum::<usize>()
    }

    /// Reports whether this rule permits the request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                AttributesTarget::Resource(target) => self.matches_resource(target),
                AttributesTarget::Path(path) => {
                    self.non_resource_urls.iter().any(|url| is_path_of(url, path))
                }
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

pub(super) fn is_path_of(own: &str, path: &str) -> bool {
    own == path || (own.ends_with(ALL) && path.starts_with(own.trim_end_matches('*')))
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
    fn rule_matches_as_upstream() {
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
                asker: None,
                user: &user,
                verb,
                target: AttributesTarget::Resource(target),
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
            assert_eq!(is_path_of(own, path), expected, "{own} {path}");
        }
    }

    #[derive(Deserialize)]
    struct PathCase {
        own: String,
        requested: String,
        covers: bool,
    }

    #[test]
    fn path_coverage_is_upstreams() {
        let table: Vec<PathCase> = crate::testing::yaml(include_str!("../../../testdata/rbac/paths.yaml"));
        for PathCase {
            own,
            requested,
            covers,
        } in table
        {
            assert_eq!(is_path_of(&own, &requested), covers, "{own} {requested}");
        }
    }
}
