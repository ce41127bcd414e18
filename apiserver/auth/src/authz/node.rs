//! What a node's agent may do: its own node and lease, its pods, and what those pods need.
//!
//! Upstream keeps a graph of all pods; here the question is answered from the objects themselves: the pods of the
//! namespace that are bound to the asking node are the only ones read.

use super::attributes::ResourceTarget;
use super::pod_references::PodReferences;
use super::rbac::PolicyRule;
use super::{Attributes, Authorizer, AuthzFuture, Decision, Reason, Target, UserRules};
use crate::bootstrap;
use crate::trusted;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{FieldSelector, GroupResource, ObjectKey, UserInfo};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// See the module.
pub struct NodeAuthorizer {
    reader: Arc<dyn ObjectReader>,
    rules: Vec<PolicyRule>,
}

impl fmt::Debug for NodeAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAuthorizer").finish_non_exhaustive()
    }
}

/// What remains to be found out after the request itself was looked at.
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

/// Everything that can be said without reading an object.
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
        ("", "serviceaccounts") => create_token(verb, target),
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
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if !target.subresource.is_empty() {
        return refuse("cannot authorize CSINode subresources");
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
        "watch" | "list" | "deletecollection" if target.selects("nodeName", node) => allow(),
        "watch" | "list" | "deletecollection" => {
            refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
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
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self {
            reader,
            rules: bootstrap::node_rules(),
        }
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
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
            Target::Resource(target) => first_step(node, attributes.verb, target),
            Target::Path(_) => Step::ByRules,
        };
        match (step, &attributes.target) {
            (Step::Decided(decision), _) => decision,
            (Step::Related(kind), Target::Resource(target)) if self.related(node, kind, target).await => {
                Decision::Allow(Reason::None)
            }
            (Step::Related(_), _) => Decision::no_opinion(format!(
                "no relationship found between node '{node}' and this object"
            )),
            (Step::ByRules, _) if self.rules.iter().any(|rule| rule.allows(attributes)) => {
                Decision::Allow(Reason::None)
            }
            (Step::ByRules, _) => Decision::NoOpinion(Reason::None),
        }
    }

    async fn related(&self, node: &str, kind: Kind, target: &ResourceTarget<'_>) -> bool {
        let (namespace, name) = (target.namespace, target.name);
        match kind {
            Kind::Secret => self.any_pod(node, namespace, |pod| pod.uses_secret(name)).await,
            Kind::ConfigMap => {
                self.any_pod(node, namespace, |pod| pod.uses_config_map(name))
                    .await
            }
            Kind::VolumeClaim => {
                self.any_pod(node, namespace, |pod| pod.uses_volume_claim(name))
                    .await
            }
            Kind::ResourceClaim => {
                self.any_pod(node, namespace, |pod| pod.uses_resource_claim(name))
                    .await
            }
            Kind::ServiceAccount => {
                self.any_pod(node, namespace, |pod| pod.service_account() == name)
                    .await
            }
            Kind::Pod => {
                let pod = trusted::get(&*self.reader, "", "pods", &ObjectKey::new(namespace, name)).await;
                pod.and_then(|pod| PodReferences::parse(&pod.json))
                    .is_some_and(|pod| pod.node_name() == node)
            }
            Kind::Volume => self.uses_volume(node, name).await,
            Kind::VolumeAttachment => {
                self.names_node(node, "storage.k8s.io", "volumeattachments", name)
                    .await
            }
            Kind::ResourceSlice => {
                self.names_node(node, "resource.k8s.io", "resourceslices", name)
                    .await
            }
        }
    }

    async fn any_pod(
        &self,
        node: &str,
        namespace: &str,
        uses: impl Fn(&PodReferences) -> bool + Send,
    ) -> bool {
        let pods = GroupResource::new("", "pods");
        let of_node = FieldSelector::equals("spec.nodeName", node);
        let Ok(found) = self.reader.list_where(&pods, namespace, &of_node).await else {
            return false;
        };
        found
            .iter()
            .filter_map(|pod| PodReferences::parse(&pod.json))
            .any(|pod| pod.node_name() == node && !pod.is_mirror() && uses(&pod))
    }

    async fn uses_volume(&self, node: &str, name: &str) -> bool {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Volume {
            spec: VolumeSpec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct VolumeSpec {
            claim_ref: Option<ClaimRef>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct ClaimRef {
            namespace: String,
            name: String,
        }
        let found = trusted::get(&*self.reader, "", "persistentvolumes", &ObjectKey::cluster(name)).await;
        let claim = found
            .and_then(|volume| serde_json::from_slice::<Volume>(&volume.json).ok())
            .and_then(|volume| volume.spec.claim_ref);
        match claim {
            Some(claim) => {
                self.any_pod(node, &claim.namespace, |pod| pod.uses_volume_claim(&claim.name))
                    .await
            }
            None => false,
        }
    }

    async fn names_node(&self, node: &str, group: &str, resource: &str, name: &str) -> bool {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct WithNode {
            spec: NodeSpec,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct NodeSpec {
            node_name: Option<String>,
        }
        let found = trusted::get(&*self.reader, group, resource, &ObjectKey::cluster(name)).await;
        found
            .and_then(|object| serde_json::from_slice::<WithNode>(&object.json).ok())
            .is_some_and(|object| object.spec.node_name.as_deref() == Some(node))
    }
}

impl Authorizer for NodeAuthorizer {
    fn name(&self) -> &'static str {
        "Node"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision> {
        Box::pin(self.decide(attributes))
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
mod tests {
    use super::*;
    use crate::testing::{Objects, block_on};

    const POD: &str = r#"{"spec":{"nodeName":"n1","serviceAccountName":"sa","volumes":[{"name":"a","secret":{"secretName":"s"}}]}}"#;

    #[track_caller]
    fn check(user: &UserInfo, verb: &str, group: &str, path: &str, expected: Result<(), &str>) {
        let objects = Objects::default();
        objects.put("", "pods", "a", "p", POD);
        let node = NodeAuthorizer::new(Arc::new(objects));
        let (path, selector) = path.split_once('?').unwrap_or((path, ""));
        let fields = FieldSelector::parse(selector).unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        let [namespace, resource, name, subresource] =
            [0, 1, 2, 3].map(|i| parts.get(i).copied().unwrap_or_default());
        let target = ResourceTarget {
            group,
            version: "v1",
            resource,
            subresource,
            namespace,
            name,
            field_selector: Some(&fields),
            label_selector: None,
        };
        let decision = block_on(node.authorize(&Attributes {
            user,
            verb,
            target: Target::Resource(target),
        }));
        match expected {
            Ok(()) => assert!(decision.is_allowed(), "{verb} {path}: {decision:?}"),
            Err(why) => {
                assert!(!decision.is_allowed(), "{verb} {path}");
                assert_eq!(decision.reason().to_string(), why);
            }
        }
    }

    #[test]
    fn a_node_sees_what_its_pods_need() {
        let (own, other) = (UserInfo::node("n1"), UserInfo::node("n2"));
        let unrelated = Err("no relationship found between node 'n2' and this object");
        check(&own, "get", "", "a/secrets/s", Ok(()));
        check(&own, "watch", "", "a/secrets/s", Ok(()));
        check(&other, "get", "", "a/secrets/s", unrelated);
        check(
            &own,
            "get",
            "",
            "b/secrets/s",
            Err("no relationship found between node 'n1' and this object"),
        );
        check(&own, "list", "", "a/secrets", Err("No Object name found"));
        check(
            &own,
            "update",
            "",
            "a/secrets/s",
            Err("can only read resources of this type"),
        );
        check(&own, "create", "", "a/serviceaccounts/sa/token", Ok(()));
        check(&other, "create", "", "a/serviceaccounts/sa/token", unrelated);
        check(&own, "get", "", "a/pods/p", Ok(()));
        check(&own, "list", "", "/pods//?spec.nodeName=n1", Ok(()));
        check(
            &own,
            "list",
            "",
            "/pods//?spec.nodeName=n2",
            Err("can only list/watch pods with spec.nodeName field selector"),
        );
        check(&own, "patch", "", "/nodes/n1/status", Ok(()));
        check(
            &own,
            "get",
            "",
            "/nodes/n2",
            Err("node 'n1' cannot read 'n2', only its own Node object"),
        );
        check(
            &own,
            "update",
            "coordination.k8s.io",
            "kube-node-lease/leases/n1",
            Ok(()),
        );
        check(&own, "list", "", "/services", Ok(()));
        check(&own, "delete", "", "a/services/x", Err(""));
        check(
            &UserInfo::named("system:node:n1", ["x"]),
            "get",
            "",
            "a/secrets/s",
            Err(""),
        );
    }
}
