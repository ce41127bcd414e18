//! Grants: a user writes no role and no binding beyond what they hold. Upstream checks it in the stores of RBAC
//! (`pkg/registry/rbac/*/policybased`), before anything else of the object is validated.

use apiserver_auth::authz::rbac::escalation::{self, GrantChange, GrantCheck, GrantTarget};
use apiserver_auth::authz::rbac::{RbacAuthorizer, RoleRef};
use apiserver_auth::authz::{AuthorizerChain, Busy};
use apiserver_registry::{Attributes, Operation, RegistryError, RequestContext};
use machinery_schema::Tree;
use std::sync::Arc;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const GRANTS: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// The check of roles and bindings.
pub(super) struct Grants {
    pub(super) rbac: Arc<RbacAuthorizer>,
    pub(super) authorizers: AuthorizerChain,
}

impl Grants {
    /// Refuses a role or binding that grants more than its writer holds; other objects pass.
    pub(super) async fn check(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        if !is_grant(attributes) {
            return Ok(());
        }
        let target = GrantTarget {
            resource: &attributes.resource.resource,
            namespace: &attributes.namespace,
            name: if attributes.addressed {
                &attributes.name
            } else {
                ""
            },
        };
        let change = GrantChange { old, new: object };
        let check = escalation::check(&self.rbac, &self.authorizers, &ctx.user, target, change).await;
        match check.map_err(|Busy| RegistryError::busy())? {
            GrantCheck::Allowed => Ok(()),
            GrantCheck::Refused(why) => {
                let name = object.str_at(&["metadata", "name"]);
                Err(RegistryError::forbidden(
                    &attributes.resource.group_resource(),
                    name,
                    why,
                ))
            }
            GrantCheck::RoleMissing(role) => Err(missing_role(attributes, &role)),
        }
    }
}

/// Upstream's answers to a binding of an absent role: the lookup is made in the name of the binding's own resource.
fn missing_role(attributes: &Attributes, role: &RoleRef) -> RegistryError {
    match role.kind.as_str() {
        "Role" if attributes.namespace.is_empty() => {
            RegistryError::BadRequest("Namespace parameter required.".to_owned())
        }
        "Role" | "ClusterRole" => RegistryError::not_found(&attributes.resource.group_resource(), &role.name),
        other => RegistryError::Unclassified(format!("unsupported role reference kind: {other:?}")),
    }
}

fn is_grant(attributes: &Attributes) -> bool {
    attributes.resource.group == RBAC_GROUP
        && GRANTS.contains(&attributes.resource.resource.as_str())
        && matches!(attributes.operation, Operation::Create | Operation::Update)
}
