//! Upstream's default roles and bindings for the release, as data: `policy.jsons`, JSON
//! objects with empty lines between them, was read from a fresh upstream server.
//!
//! At start the server writes what is missing and, where the `autoupdate` annotation says so, adds to what is there
//! the rules and subjects it lacks ([`missing`]). Aggregated roles come without rules: their controller fills them.

mod reconcile;

pub use reconcile::{Missing, missing};

use crate::authz::rbac::PolicyRule;
use serde::Deserialize;

const POLICY: &str = include_str!("policy.jsons");
/// Ours: what upstream's installers bring.
const OWN: &str = include_str!("own.jsons");

/// One default object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultObject {
    /// `clusterroles`, `clusterrolebindings`, `roles` or `rolebindings`.
    pub resource: &'static str,
    pub namespace: &'static str,
    pub name: &'static str,
    /// The whole object.
    pub json: &'static str,
}

#[derive(Deserialize)]
struct Head<'a> {
    kind: &'a str,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(default)]
    namespace: &'a str,
    name: &'a str,
}

/// All default objects: upstream's cluster roles, cluster role bindings, roles, role bindings, each in order of name; ours.
pub fn default_objects() -> Vec<DefaultObject> {
    POLICY
        .split("\n\n")
        .chain(OWN.split("\n\n"))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(default_object)
        .collect()
}

fn default_object(json: &'static str) -> DefaultObject {
    let head: Head<'static> = serde_json::from_str(json).expect("the policy file is checked by a test");
    let resource = match head.kind {
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        _ => "rolebindings",
    };
    DefaultObject {
        resource,
        namespace: head.metadata.namespace,
        name: head.metadata.name,
        json,
    }
}

/// The rules every node has: those of the `system:node` role.
pub fn node_rules() -> Vec<PolicyRule> {
    #[derive(Deserialize)]
    struct Role {
        rules: Vec<PolicyRule>,
    }
    let objects = default_objects();
    let role = objects
        .iter()
        .find(|object| object.resource == "clusterroles" && object.name == "system:node");
    let role = role.map(|object| serde_json::from_str::<Role>(object.json));
    role.and_then(Result::ok)
        .map(|role| role.rules)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_policy_is_complete_and_parses() {
        let objects = default_objects();
        let count = |resource| {
            objects
                .iter()
                .filter(|object| object.resource == resource)
                .count()
        };
        assert!(count("clusterroles") >= 70, "{}", count("clusterroles"));
        assert!(
            count("clusterrolebindings") >= 50,
            "{}",
            count("clusterrolebindings")
        );
        assert!(count("roles") >= 7 && count("rolebindings") >= 7);
        assert!(!node_rules().is_empty());
        for object in objects {
            assert!(object.json.contains("rbac-defaults"), "{}", object.name);
            assert_eq!(
                object.namespace.is_empty(),
                object.resource.starts_with("cluster"),
                "{}",
                object.name
            );
        }
    }
}
