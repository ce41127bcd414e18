//! Users that send the tests' requests, and RBAC that authorizes each request, and each further check of a handler.

use apiserver_auth::authz::attributes::{AttributesTarget, ResourceTarget};
use apiserver_auth::authz::rbac::{self, RbacAuthorizer};
use apiserver_auth::authz::{Attributes, AuthorizerChain, Forbidden};
use apiserver_endpoints::{
    Connections, NodeUsage, Observers, Parts, PodUsage, RequestInfo, ResourceUsage, Reviews, Rights, Tokens,
    Usage,
};
use apiserver_registry::{RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_meta::{GroupResource, ObjectKey, UserInfo};
use serde_json::{Value, json};
use std::sync::Arc;

/// Namespaces in which the tenant has every right, by a Role and a RoleBinding in each.
const NAMESPACES: [&str; 4] = ["a", "default", "n", "sample"];

/// Sends what is for a namespace.
pub(crate) fn tenant() -> UserInfo {
    UserInfo::named("tenant", [UserInfo::AUTHENTICATED])
}

/// Sends what is for the cluster, with rights by a ClusterRole: no user here is in `system:masters`.
pub(crate) fn operator() -> UserInfo {
    UserInfo::named("operator", [UserInfo::AUTHENTICATED])
}

/// A user who may change what is in the namespace `n`, and make nothing there.
pub(crate) fn updater() -> UserInfo {
    UserInfo::named("updater", [UserInfo::AUTHENTICATED])
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Access(AuthorizerChain);

impl Access {
    pub(crate) fn new() -> Self {
        let rbac = Arc::new(RbacAuthorizer::default());
        let everything = json!({"rules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]}]});
        put(&rbac, "clusterroles", "", &everything);
        put(
            &rbac,
            "clusterrolebindings",
            "",
            &binding("ClusterRole", "operator"),
        );
        for namespace in NAMESPACES {
            put(&rbac, "roles", namespace, &everything);
            put(&rbac, "rolebindings", namespace, &binding("Role", "tenant"));
        }
        let changes =
            json!({"rules": [{"verbs": ["update", "patch"], "apiGroups": ["*"], "resources": ["*"]}]});
        let key = |namespace| ObjectKey::new(namespace, "updater");
        let mut of_updater = binding("Role", "updater");
        of_updater["roleRef"]["name"] = "updater".into();
        for (resource, object) in [("roles", &changes), ("rolebindings", &of_updater)] {
            let resource = GroupResource::new(rbac::GROUP, resource);
            rbac.apply(&resource, &key("n"), Some(object.to_string().as_bytes()));
        }
        Self(AuthorizerChain::new(vec![rbac]))
    }

    /// Asks RBAC as the server's authorization filter does.
    pub(crate) async fn check(
        &self,
        user: &UserInfo,
        verb: &str,
        info: &RequestInfo,
    ) -> Result<(), RegistryError> {
        let target = if info.is_resource_request {
            AttributesTarget::Resource(ResourceTarget {
                group: &info.api_group,
                version: &info.api_version,
                resource: &info.resource,
                subresource: &info.subresource,
                namespace: &info.namespace,
                name: &info.name,
                field_selector: None,
                label_selector: None,
            })
        } else {
            AttributesTarget::Path(&info.path)
        };
        let attributes = Attributes {
            asker: None,
            user,
            verb,
            target,
        };
        let decision = self.0.authorize(&attributes).await.unwrap();
        if decision.is_allowed() {
            return Ok(());
        }
        let forbidden = Forbidden::new(&attributes, &decision);
        Err(RegistryError::forbidden(
            &forbidden.resource,
            &forbidden.name,
            forbidden.detail,
        ))
    }
}

fn put(rbac: &RbacAuthorizer, resource: &str, namespace: &str, object: &Value) {
    let key = ObjectKey::new(namespace, "owner");
    let json = object.to_string().into_bytes();
    rbac.apply(&GroupResource::new(rbac::GROUP, resource), &key, Some(&json));
}

fn binding(role: &str, user: &str) -> Value {
    json!({"roleRef": {"kind": role, "name": "owner"}, "subjects": [{"kind": "User", "name": user}]})
}

/// The user of a request where a test names none.
pub(crate) fn usual_user(info: &RequestInfo) -> UserInfo {
    if info.namespace.is_empty() || info.resource == "namespaces" {
        operator()
    } else {
        tenant()
    }
}

impl Connections for Access {}
impl Observers for Access {}
impl Reviews for Access {}
impl Tokens for Access {}

#[async_trait]
impl Parts for Access {
    async fn resource_usage(&self) -> Arc<ResourceUsage> {
        Arc::new(usage())
    }
}

#[async_trait]
impl Rights for Access {
    async fn authorize(
        &self,
        ctx: &RequestContext,
        verb: &str,
        info: &RequestInfo,
    ) -> Result<(), RegistryError> {
        self.check(&ctx.user, verb, info).await
    }
}

/// Usage of the node `node`, and of the pods `default/web` and `default/waits`.
fn usage() -> ResourceUsage {
    let of = |cpu_nanocores, memory_bytes| Usage {
        cpu_nanocores,
        memory_bytes,
    };
    let (at, window) = (
        jiff::Timestamp::from_second(1_767_225_600).unwrap(),
        std::time::Duration::from_millis(15_013),
    );
    let containers: [(Box<str>, Usage); 2] = [
        ("a".into(), of(1_500_000, 1_048_576)),
        ("b".into(), of(1_000_000_001, 1_000)),
    ];
    let pod = PodUsage {
        at,
        window,
        containers: containers.into(),
    };
    let node = NodeUsage {
        at,
        window,
        usage: of(250_000_000, 3 << 30),
    };
    let pods = ["web", "waits"].map(|name| (ObjectKey::new("default", name), pod.clone()));
    ResourceUsage {
        nodes: [("node".into(), node)].into(),
        pods: pods.into(),
    }
}
