//! Subresources of the built-in kinds: the table names them, and each name has a role.

use super::rows::verbs;
use crate::engine::row::{ScalePaths, Subresource, SubresourceRole};
use machinery_api::KindInfo;

/// The name of a subresource, and what makes its role.
type Named = (&'static str, fn() -> SubresourceRole);

/// Roles by name, which mean the same of every kind.
const ROLES: [Named; 14] = [
    ("approval", || SubresourceRole::Whole("approval")),
    ("attach", || SubresourceRole::Connect),
    ("binding", || SubresourceRole::Binding),
    ("ephemeralcontainers", || {
        SubresourceRole::Whole("ephemeralcontainers")
    }),
    ("eviction", || SubresourceRole::Eviction),
    ("exec", || SubresourceRole::Connect),
    ("finalize", || SubresourceRole::Whole("finalize")),
    ("log", || SubresourceRole::Log),
    ("portforward", || SubresourceRole::Connect),
    ("proxy", || SubresourceRole::Connect),
    ("resize", || SubresourceRole::Whole("resize")),
    ("scale", || SubresourceRole::Scale(scale_paths())),
    ("status", || SubresourceRole::Status),
    ("token", || SubresourceRole::Token),
];

/// Reports whether requests to a subresource of this name, whatever its kind, last as long as their clients want: streams have
/// no deadline and hold no seat (upstream's `BasicLongRunningRequestCheck`).
pub fn is_long_running(subresource: &str) -> bool {
    let role = ROLES.iter().find(|(name, _)| *name == subresource);
    role.is_some_and(|(_, role)| matches!(role(), SubresourceRole::Connect | SubresourceRole::Log))
}

/// The subresource of a kind as it is served.
pub(super) fn row(info: &KindInfo, sub: &machinery_api::Subresource) -> Subresource {
    let role = ROLES.iter().find(|(name, _)| *name == sub.name);
    let (_, role) =
        role.unwrap_or_else(|| panic!("the table has a subresource {:?} without a role", sub.name));
    let own = &sub.gvk;
    let gvk = if own.version.is_empty() {
        info.gvk.group_version().kind(&own.kind)
    } else {
        own.clone()
    };
    Subresource {
        name: sub.name.clone(),
        gvk,
        verbs: verbs(&sub.verbs),
        role: role(),
    }
}

fn scale_paths() -> ScalePaths {
    let path = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    ScalePaths {
        spec_replicas: path(["spec", "replicas"]),
        status_replicas: path(["status", "replicas"]),
        custom: false,
        selector: Some(path(["spec", "selector"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn subresources_of_the_table_are_those_that_have_a_role() {
        let kinds = machinery_api::table().kinds().iter();
        let served: BTreeSet<&str> = kinds
            .flat_map(|kind| &kind.subresources)
            .map(|sub| sub.name.as_str())
            .collect();
        let listed: BTreeSet<&str> = ROLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, served);
    }

    #[test]
    fn long_running_subresources_are_upstreams() {
        let long = ROLES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| is_long_running(name));
        assert!(long.eq(["attach", "exec", "log", "portforward", "proxy"]));
        assert!(!is_long_running(""));
    }
}
