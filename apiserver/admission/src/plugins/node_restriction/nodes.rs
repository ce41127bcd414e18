//! The node itself, its lease and its CSINode.

use super::{LEASE_NAMESPACE, NodeRequest, Verdict, refuse, same};
use crate::Operation;
use machinery_schema::{Ref, Tree};
use machinery_semantics::node_labels::KUBELET_LABELS;
use std::collections::BTreeSet;

const RESTRICTED_NAMESPACE: &str = "node-restriction.kubernetes.io";

const KUBELET_LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

pub(super) fn node(asked: NodeRequest<'_>) -> Verdict {
    let (node, name) = (asked.node, asked.request.name);
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match (asked.request.operation, asked.object, asked.old) {
        (Operation::Create, Some(object), _) => create(node, object),
        (Operation::Update, Some(object), Some(old)) => update(node, object, old),
        _ => Ok(()),
    }
}

fn create(node: &str, object: &Tree) -> Verdict {
    if object.at(&["spec", "configSource"]).is_some() {
        return refuse(format!(
            "node {node:?} is not allowed to create pods with a non-nil configSource"
        ));
    }
    ranges(node, object, None)?;
    let forbidden = forbidden_labels(object, None);
    if forbidden.is_empty() {
        return Ok(());
    }
    refuse(format!(
        "node {node:?} is not allowed to set the following labels: {forbidden}"
    ))
}

/// Every node's packets to pods go where ranges say: makers of routes (this binary's agents, upstream's network plugins
/// and clouds) believes the allocator, not the node. Upstream's plugin lets a node write them.
fn ranges(node: &str, object: &Tree, old: Option<&Tree>) -> Verdict {
    let paths = [["spec", "podCIDR"], ["spec", "podCIDRs"]];
    let is_kept = |path: &[&str; 2]| match old {
        Some(old) => same(object, old, path),
        None => object
            .at(path)
            .is_none_or(|own| matches!(own.to_json().as_str(), "null" | "[]" | "\"\"")),
    };
    if paths.iter().all(is_kept) {
        return Ok(());
    }
    refuse(format!(
        "node {node:?} is not allowed to set the addresses of its pods"
    ))
}

/// Taints, labels and owners would let a node draw work to itself, or delete itself and come back as another.
fn update(node: &str, object: &Tree, old: &Tree) -> Verdict {
    let source = &["spec", "configSource"];
    if object.at(source).is_some() && !same(object, old, source) {
        return refuse(format!(
            "node {node:?} is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    if !same(object, old, &["spec", "taints"]) {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if !same(object, old, &["metadata", "ownerReferences"]) {
        return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    ranges(node, object, Some(old))?;
    let forbidden = forbidden_labels(object, Some(old));
    if forbidden.is_empty() {
        return Ok(());
    }
    refuse(format!("is not allowed to modify labels: {forbidden}"))
}

/// Keys of labels that differ and are not the node's to write, separated by commas.
fn forbidden_labels(object: &Tree, old: Option<&Tree>) -> String {
    let label = |tree: Option<&Tree>, key: &str| {
        tree.and_then(|tree| tree.at(&["metadata", "labels", key]))
            .and_then(Ref::as_str)
            .map(str::to_owned)
    };
    let keys = |tree: &Tree| -> Vec<String> {
        let labels = tree.at(&["metadata", "labels"]);
        labels
            .into_iter()
            .flat_map(Ref::entries)
            .map(|(key, _)| key.to_owned())
            .collect()
    };
    let mut all: BTreeSet<String> = keys(object).into_iter().collect();
    all.extend(old.into_iter().flat_map(keys));
    all.retain(|key| label(Some(object), key) != label(old, key) && is_forbidden(key));
    all.into_iter().collect::<Vec<_>>().join(", ")
}

fn is_forbidden(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return false;
    };
    let below = |parent: &str| {
        namespace == parent || namespace.strip_suffix(parent).is_some_and(|p| p.ends_with('.'))
    };
    let own = KUBELET_LABELS.contains(&key) || KUBELET_LABEL_NAMESPACES.iter().any(|parent| below(parent));
    below(RESTRICTED_NAMESPACE) || ((below("kubernetes.io") || below("k8s.io")) && !own)
}

pub(super) fn lease(asked: NodeRequest<'_>) -> Verdict {
    if asked.request.namespace != LEASE_NAMESPACE {
        return refuse(format!(
            "can only access leases in the {LEASE_NAMESPACE:?} system namespace"
        ));
    }
    own_name(asked, "node lease")
}

pub(super) fn csi_node(asked: NodeRequest<'_>) -> Verdict {
    own_name(asked, "CSINode")?;
    if asked.request.subresource == "status" {
        return refuse("CSIVolumeHealth feature gate is disabled");
    }
    Ok(())
}

/// The name in the object counts on create, that in the address otherwise.
fn own_name(asked: NodeRequest<'_>, what: &str) -> Verdict {
    let name = match (asked.request.operation, asked.object) {
        (Operation::Create, Some(object)) => object.str_at(&["metadata", "name"]),
        _ => asked.request.name,
    };
    if name == asked.node {
        return Ok(());
    }
    refuse(format!(
        "can only access {what} with the same name as the requesting node"
    ))
}
