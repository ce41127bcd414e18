//! Role-based access control.
//!
//! The four RBAC resources are kept compiled in an [`index`] by subject, which whoever follows their changes tells of
//! each one ([`RbacAuthorizer::apply`]): a change costs what its object costs, whoever else has bindings. A decision is
//! then two hash lookups per user and group and a walk over the rules found. [`rules`] says what a rule matches,
//! [`coverage`] when rules cover others, [`escalation`] what one may grant.

pub mod coverage;
pub mod escalation;
mod index;
pub mod rules;

pub use index::{Grant, RoleRef};
pub use rules::PolicyRule;

use super::{Attributes, Authorizer, AuthzFuture, Decision, Reason, UserRules};
use coverage::Held;
use index::{Index, Rules};
use machinery_meta::{GroupResource, ObjectKey, UserInfo};
use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;

/// The resources that the authorizer answers from.
pub const GROUP: &str = "rbac.authorization.k8s.io";
pub const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Answers from roles and bindings.
#[derive(Default)]
pub struct RbacAuthorizer(RwLock<Index>);

impl fmt::Debug for RbacAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbacAuthorizer").finish_non_exhaustive()
    }
}

impl RbacAuthorizer {
    /// Takes a role or binding as it is now (its JSON), or its deletion.
    pub fn apply(&self, resource: &GroupResource, key: &ObjectKey, json: Option<&[u8]>) {
        self.0.write().apply(resource, key, json);
    }

    /// Takes all objects of a resource in place of those known.
    pub fn replace<'a>(
        &self,
        resource: &GroupResource,
        objects: impl Iterator<Item = (&'a ObjectKey, Vec<u8>)>,
    ) {
        let mut index = self.0.write();
        index.clear(resource);
        for (key, json) in objects {
            index.apply(resource, key, Some(&json));
        }
    }

    /// The rules of a role; `namespace` is the binding's.
    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<Rules> {
        self.0.read().rules(role, namespace).cloned()
    }

    /// The rules a user holds in a namespace (empty: cluster-wide only), by role.
    fn held(&self, user: &UserInfo, namespace: &str) -> Held {
        let mut held = Vec::new();
        self.0.read().visit(user, namespace, |_, granted| {
            held.push(Arc::clone(granted));
            true
        });
        held
    }
}

impl Authorizer for RbacAuthorizer {
    fn name(&self) -> &'static str {
        "RBAC"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision> {
        Box::pin(async move { decide(&self.0.read(), attributes) })
    }

    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        let held = self.held(user, namespace);
        let rules = UserRules {
            rules: held.iter().flat_map(|rules| rules.iter().cloned()).collect(),
            ..UserRules::default()
        };
        Box::pin(std::future::ready(rules))
    }
}

fn decide(index: &Index, attributes: &Attributes<'_>) -> Decision {
    let namespace = match &attributes.target {
        super::Target::Resource(target) => target.namespace,
        super::Target::Path(_) => "",
    };
    let mut allowed = None;
    let missing = index.visit(attributes.user, namespace, |grant, rules| {
        if rules.iter().any(|rule| rule.allows(attributes)) {
            allowed = Some(Arc::clone(grant));
        }
        allowed.is_none()
    });
    match allowed {
        Some(grant) => Decision::Allow(Reason::Binding(grant)),
        None => Decision::NoOpinion(missing_roles(&missing)),
    }
}

/// Bindings whose role is gone are the likeliest explanation of a refusal, so it names them.
fn missing_roles(missing: &[RoleRef]) -> Reason {
    let mut names: Vec<String> = missing.iter().map(RoleRef::not_found).collect();
    names.dedup();
    match names.as_slice() {
        [] => Reason::None,
        [one] => Reason::Text(format!("RBAC: {one}")),
        several => Reason::Text(format!("RBAC: [{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests;
