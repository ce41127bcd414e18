//! The node authorizer: a kubelet may use its own node and lease, its pods, and the objects that those pods need.
//!
//! Upstream keeps a graph of all pods. This authorizer decides by an [`index`] of the objects that the pods bound to
//! the requesting node refer to, and reads the objects themselves where the index is behind.

mod index;
mod relations;

pub use index::NodeIndex;

use super::attributes::ResourceTarget;
use super::rbac::PolicyRule;
use super::{Attributes, AttributesTarget, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use crate::bootstrap;
use machinery_meta::UserInfo;
use machinery_meta::reader::ObjectReader;
use std::fmt;
use std::sync::Arc;

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// See the module.
pub struct NodeAuthorizer {
    reader: Arc<dyn ObjectReader>,
    index: Arc<NodeIndex>,
    rules: Vec<PolicyRule>,
}

impl fmt::Debug for NodeAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAuthorizer").finish_non_exhaustive()
    }
}

/// The next step of a decision, after the request itself has been read.
enum Step {
    Decided(Decision),
    /// Allowed when one of the node's pods needs the object.
    Related(Kind),
    /// Allowed by the rules every node has.
    ByRules,
}

#[derive(Clone, Copy)]
enum Kind {
    Secret,
    ConfigMap,
    VolumeClaim,
    Volume,
    ResourceClaim,
    VolumeAttachment,
    ServiceAccount,
    ResourceSlice,
    PodCertificateRequest,
    Pod,
}

fn allow() -> Step {
    Step::Decided(Decision::Allow(Reason::None))
}

fn refuse(why: impl Into<String>) -> Step {
    let why = why.into();
    Step::Decided(if why.is_empty() {
        Decision::NoOpinion(Reason::None)
    } else {
        Decision::no_opinion(why)
    })
}

/// Decides all that can be decided without reading an object.
fn first_step(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    match (target.group, target.resource) {
        ("", "secrets") => read_namespaced(verb, target, Kind::Secret),
        ("", "configmaps") => read_namespaced(verb, target, Kind::ConfigMap),
        ("", "persistentvolumeclaims") if target.subresource == "status" => match verb {
            "update" | "patch" => named(target, Kind::VolumeClaim),
            _ => refuse("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => get(verb, target, Kind::VolumeClaim),
        ("", "persistentvolumes") => get(verb, target, Kind::Volume),
        ("resource.k8s.io", "resourceclaims") => get(verb, target, Kind::ResourceClaim),
        ("storage.k8s.io", "volumeattachments") => get(verb, target, Kind::VolumeAttachment),
        ("", "serviceaccounts") if verb == "get" && target.subresource.is_empty() => {
            read_namespaced(verb, target, Kind::ServiceAccount)
        }
        ("", "serviceaccounts") => create_token(verb, target),
        ("certificates.k8s.io", "podcertificaterequests") => pod_certificate(node, verb, target),
        ("coordination.k8s.io", "leases") => lease(node, verb, target),
        ("storage.k8s.io", "csinodes") => csi_node(node, verb, target),
        ("resource.k8s.io", "resourceslices") => resource_slice(node, verb, target),
        ("", "nodes") => own_node(node, verb, target),
        ("", "pods") => pod(node, verb, target),
        _ => Step::ByRules,
    }
}

fn named(target: &ResourceTarget<'_>, kind: Kind) -> Step {
    if target.name.is_empty() {
        refuse("No Object name found")
    } else {
        Step::Related(kind)
    }
}

fn get(verb: &str, target: &ResourceTarget<'_>, kind: Kind) -> Step {
    if verb != "get" {
        return refuse("can only get individual resources of this type");
    }
    if !target.subresource.is_empty() {
        return refuse("cannot get subresource");
    }
    named(target, kind)
}

fn read_namespaced(verb: &str, target: &ResourceTarget<'_>, kind: Kind) -> Step {
    if !matches!(verb, "get" | "list" | "watch") {
        return refuse("can only read resources of this type");
    }
    if !target.subresource.is_empty() {
        return refuse("cannot read subresource");
    }
    if target.namespace.is_empty() {
        return refuse("can only read namespaced object of this type");
    }
    named(target, kind)
}

fn create_token(verb: &str, target: &ResourceTarget<'_>) -> Step {
    if verb != "create" || target.name.is_empty() {
        return refuse("can only create tokens for individual service accounts");
    }
    if target.subresource != "token" {
        return refuse("can only create token subresource of serviceaccount");
    }
    Step::Related(Kind::ServiceAccount)
}

fn lease(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if target.namespace != LEASE_NAMESPACE {
        return refuse(format!(
            "can only access leases in the {LEASE_NAMESPACE:?} system namespace"
        ));
    }
    if verb != "create" && target.name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    allow()
}

fn csi_node(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    match target.subresource {
        "" => {}
        "status" => return refuse("CSINode status access requires CSIVolumeHealth feature"),
        _ => return refuse("cannot authorize CSINode subresources"),
    }
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if verb != "create" && target.name != node {
        return refuse("can only access CSINode with the same name as the requesting node");
    }
    allow()
}

fn resource_slice(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    if !target.subresource.is_empty() {
        return refuse("cannot authorize ResourceSlice subresources");
    }
    match verb {
        "create" => allow(),
        "get" | "update" | "patch" | "delete" => named(target, Kind::ResourceSlice),
        "watch" | "list" | "deletecollection" if target.selects("spec.nodeName", node) => allow(),
        "watch" | "list" | "deletecollection" => {
            refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

/// NodeRestriction limits what is created.
fn pod_certificate(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    if !target.subresource.is_empty() {
        return refuse("nodes may not access the status subresource of PodCertificateRequests");
    }
    match verb {
        "create" => allow(),
        "get" => named(target, Kind::PodCertificateRequest),
        "list" | "watch" if target.selects("spec.nodeName", node) => allow(),
        "list" | "watch" => refuse("can only list/watch podcertificaterequests with nodeName field selector"),
        _ => refuse(format!("nodes may not {verb} podcertificaterequests")),
    }
}

fn own_node(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    match (target.subresource, verb) {
        // NodeRestriction limits these to the node's own object.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow(),
        ("", "get" | "list" | "watch") if target.name == node => allow(),
        ("", "get" | "list" | "watch") if target.name.is_empty() => refuse(format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        ("", "get" | "list" | "watch") => refuse(format!(
            "node '{node}' cannot read '{}', only its own Node object",
            target.name
        )),
        _ => refuse(""),
    }
}

fn pod(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Step {
    match (target.subresource, verb) {
        ("", "get") => get(verb, target, Kind::Pod),
        ("", "list" | "watch") if target.selects("spec.nodeName", node) => allow(),
        ("", "list" | "watch") if !target.name.is_empty() => Step::Related(Kind::Pod),
        ("", "list" | "watch") => refuse("can only list/watch pods with spec.nodeName field selector"),
        // NodeRestriction limits these to mirror pods and to pods of this node.
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => allow(),
        _ => refuse(""),
    }
}

impl NodeAuthorizer {
    pub fn new(reader: Arc<dyn ObjectReader>, index: Arc<NodeIndex>) -> Self {
        Self {
            reader,
            index,
            rules: bootstrap::node_rules(),
        }
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        // Group and name, as upstream's `NodeIdentifier`: a certificate with the name alone is no node's.
        if !attributes.user.in_group("system:nodes") {
            return Decision::NoOpinion(Reason::None);
        }
        let Some(node) = attributes.user.node_name() else {
            return Decision::NoOpinion(Reason::None);
        };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let step = match &attributes.target {
            AttributesTarget::Resource(target) => first_step(node, attributes.verb, target),
            AttributesTarget::Path(_) => Step::ByRules,
        };
        match (step, &attributes.target) {
            (Step::Decided(decision), _) => decision,
            (Step::Related(kind), AttributesTarget::Resource(target))
                if self.related(node, kind, target).await =>
            {
                Decision::Allow(Reason::None)
            }
            (Step::Related(_), _) => Decision::no_opinion(format!(
                "no relationship found between node '{node}' and this object"
            )),
            // What upstream's `NodeRules` list; relations and own objects are decided above.
            (Step::ByRules, _) if self.rules.iter().any(|rule| rule.allows(attributes)) => {
                Decision::Allow(Reason::None)
            }
            (Step::ByRules, _) => Decision::NoOpinion(Reason::None),
        }
    }
}

impl Authorizer for NodeAuthorizer {
    fn name(&self) -> &'static str {
        "node"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("Node")
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(async { Ok(self.decide(attributes).await) })
    }

    fn rules_for<'a>(&'a self, user: &'a UserInfo, _namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        let rules = if user.node_name().is_some() {
            let error = Some("node authorizer does not support user rule resolution".to_owned());
            UserRules {
                incomplete: true,
                error,
                ..UserRules::default()
            }
        } else {
            UserRules::default()
        };
        Box::pin(std::future::ready(rules))
    }
}

#[cfg(test)]
mod tests;
