//! Role-based access control.
//!
//! The four RBAC resources are read through the `ObjectReader`, compiled into an [`index`] by subject and kept until a
//! generation moves; only the resource that moved is read again. A decision is then two hash lookups per user and
//! group and a walk over the rules found. [`rules`] says what a rule matches, [`escalation`] what one may grant.

pub mod escalation;
pub mod index;
pub mod rules;

pub use index::{Grant, RoleRef};
pub use rules::PolicyRule;

use super::{Attributes, Authorizer, AuthzFuture, Decision, Reason, UserRules};
use arc_swap::ArcSwapOption;
use index::Index;
use machinery_meta::UserInfo;
use machinery_meta::reader::{ObjectReader, ReadError};
use std::fmt;
use std::sync::Arc;

/// Answers from roles and bindings.
pub struct RbacAuthorizer {
    reader: Arc<dyn ObjectReader>,
    resources: index::Resources,
    index: ArcSwapOption<Index>,
}

impl fmt::Debug for RbacAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbacAuthorizer").finish_non_exhaustive()
    }
}

impl RbacAuthorizer {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self {
            reader,
            resources: index::Resources::new(),
            index: ArcSwapOption::empty(),
        }
    }

    /// The compiled rules of this moment.
    pub async fn index(&self) -> Result<Arc<Index>, ReadError> {
        let current = self.index.load();
        if let Some(index) = current
            .as_ref()
            .filter(|index| index.is_current(&*self.reader, &self.resources))
        {
            return Ok(Arc::clone(index));
        }
        // Two requests may compile at once; both results are right, and the later one stays.
        let fresh = Arc::new(Index::read(&*self.reader, &self.resources, current.as_deref()).await?);
        self.index.store(Some(Arc::clone(&fresh)));
        Ok(fresh)
    }

    /// The grants a user holds in a namespace (empty: cluster-wide only), each with its rules.
    pub async fn effective_rules(
        &self,
        user: &UserInfo,
        namespace: &str,
    ) -> Result<Vec<PolicyRule>, ReadError> {
        let index = self.index().await?;
        let mut rules = Vec::new();
        index.visit(user, namespace, |_, granted| {
            rules.extend_from_slice(granted);
            true
        });
        Ok(rules)
    }
}

impl Authorizer for RbacAuthorizer {
    fn name(&self) -> &'static str {
        "RBAC"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision> {
        Box::pin(async move {
            match self.index().await {
                Ok(index) => decide(&index, attributes),
                Err(error) => Decision::NoOpinion(Reason::Text(format!("RBAC: {error}"))),
            }
        })
    }

    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(async move {
            match self.effective_rules(user, namespace).await {
                Ok(rules) => UserRules {
                    rules,
                    ..UserRules::default()
                },
                Err(error) => UserRules {
                    error: Some(error.to_string()),
                    incomplete: true,
                    ..UserRules::default()
                },
            }
        })
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
