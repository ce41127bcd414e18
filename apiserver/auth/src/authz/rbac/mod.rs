//! Role-based access control.
//!
//! The four RBAC resources are kept compiled in an [`index`] by subject, which the follower of their changes keeps up with
//! each one ([`RbacAuthorizer::apply`]): a change costs what its object costs, whatever the number of bindings. A decision is
//! then two hash lookups per user and group, and for each role found a [`lookup`] by what is requested. [`rules`] says what a rule matches,
//! [`coverage`] when rules cover others, [`escalation`] what one may grant.

pub mod coverage;
pub mod escalation;
mod index;
mod lookup;
pub mod rules;

pub use index::{OwnedGrant, RoleRef};
pub use rules::PolicyRule;
pub(super) use rules::full_authority;

use super::{Attributes, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use coverage::Held;
use index::{Grant, Index};
use lookup::Rules;
use machinery_meta::{GroupResource, ObjectKey, UserInfo};
use parking_lot::RwLock;
use std::collections::HashSet;
use std::fmt;

/// The resources that the authorizer answers from.
pub const GROUP: &str = "rbac.authorization.k8s.io";
pub const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Memory of the rules that one review lists: writers of roles in a namespace decide how many rules every user holds there.
const MAX_LISTED_BYTES: usize = 4 << 20;

/// Grants up to which the authorizer does not look for repeated roles.
const FEW_GRANTS: usize = 16;

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
    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<Vec<PolicyRule>> {
        let rules = self.0.read().rules(role, namespace).cloned();
        rules.map(|rules| rules.list())
    }

    /// Collects the user's grants under the lock and compares them without it, so that many grants delay neither
    /// changes nor other requests.
    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let namespace = match &attributes.target {
            super::AttributesTarget::Resource(target) => target.namespace,
            super::AttributesTarget::Path(_) => "",
        };
        let mut found: Vec<(Grant<'_>, Rules)> = Vec::new();
        let missing = self.0.read().visit(attributes.user, namespace, |grant, rules| {
            found.push((grant, rules.clone()));
        });
        let mut refused = HashSet::new();
        for (at, (grant, rules)) in found.iter().enumerate() {
            // One role may have many bindings.
            if at >= FEW_GRANTS && !refused.insert(rules.identity()) {
                continue;
            }
            if rules.allow(attributes) {
                return Decision::Allow(Reason::Binding(grant.to_owned().into()));
            }
        }
        let reason = missing_roles(&missing).map(|names| Reason::Text(format!("RBAC: {names}")));
        Decision::NoOpinion(reason.unwrap_or_default())
    }

    /// The rules a user holds in a namespace (empty: cluster-wide only), by role: each role once, however many bindings
    /// it has.
    fn held(&self, user: &UserInfo, namespace: &str) -> Held {
        self.held_and_missing(user, namespace).0
    }

    fn held_and_missing(&self, user: &UserInfo, namespace: &str) -> (Held, Vec<RoleRef>) {
        let (mut held, mut seen) = (Vec::new(), HashSet::new());
        let missing = self.0.read().visit(user, namespace, |_, granted| {
            if seen.insert(granted.identity()) {
                held.push(granted.clone());
            }
        });
        (held, missing)
    }
}

impl Authorizer for RbacAuthorizer {
    fn name(&self) -> &'static str {
        "rbac"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("RBAC")
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(async move { Ok(self.decide(attributes)) })
    }

    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        let (held, missing) = self.held_and_missing(user, namespace);
        Box::pin(std::future::ready(listed(&held, missing_roles(&missing))))
    }
}

/// The rules as a review lists them, as far as [`MAX_LISTED_BYTES`] allow.
fn listed(held: &Held, error: Option<String>) -> UserRules {
    let mut room = MAX_LISTED_BYTES;
    let fits = |rule: &PolicyRule| {
        let left = room.checked_sub(rule.footprint());
        room = left.unwrap_or(0);
        left.is_some()
    };
    // One role at a time is read.
    let all = held.iter().flat_map(|role| role.list());
    let rules: Vec<PolicyRule> = all.take_while(fits).collect();
    let incomplete = rules.len() < held.iter().map(Rules::len).sum();
    let cut = incomplete.then(|| format!("the first {} rules are listed, there are more", rules.len()));
    UserRules {
        rules,
        incomplete,
        error: crate::aggregated(error.into_iter().chain(cut)),
    }
}

/// Bindings whose role is gone are the likeliest explanation of a refusal, so it names them.
fn missing_roles(missing: &[RoleRef]) -> Option<String> {
    crate::aggregated(missing.iter().map(RoleRef::not_found))
}

#[cfg(test)]
mod tests;
