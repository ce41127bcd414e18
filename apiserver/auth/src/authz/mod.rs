//! What a user may do.
//!
//! The authorizers are asked in the order of [`default_chain`]; the first that allows or denies decides, and when none
//! has an opinion the request is refused with the reasons they gave. A new authorizer is a file here and a line there.

pub mod always_allow;
pub mod attributes;
pub mod forbidden;
pub mod masters;
pub mod node;
pub mod rbac;

pub use attributes::{Attributes, Target};
pub use forbidden::Forbidden;

use machinery_meta::UserInfo;
use machinery_meta::reader::ObjectReader;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future, so that authorizers stay usable behind `dyn`.
pub type AuthzFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What one authorizer, or the chain, says.
#[derive(Debug, Clone)]
pub enum Decision {
    Allow(Reason),
    Deny(Reason),
    NoOpinion(Reason),
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    pub fn reason(&self) -> &Reason {
        match self {
            Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason) => reason,
        }
    }

    pub(crate) fn no_opinion(reason: impl Into<String>) -> Self {
        Self::NoOpinion(Reason::Text(reason.into()))
    }
}

/// Why; written out only when somebody reads it.
#[derive(Debug, Clone, Default)]
pub enum Reason {
    #[default]
    None,
    Text(String),
    Binding(Arc<rbac::Grant>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Binding(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

/// One source of decisions.
pub trait Authorizer: Send + Sync + fmt::Debug {
    fn name(&self) -> &'static str;

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision>;

    /// The rules this authorizer can name for a user in a namespace.
    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules>;
}

/// What is known of a user's rules (`SelfSubjectRulesReview`).
#[derive(Debug, Clone, Default)]
pub struct UserRules {
    pub rules: Vec<rbac::PolicyRule>,
    /// Some rules could not be named; `error` says why.
    pub incomplete: bool,
    pub error: Option<String>,
}

/// Authorizers in asking order.
#[derive(Debug, Clone)]
pub struct AuthorizerChain(Vec<Arc<dyn Authorizer>>);

/// The chain of `--authorization-mode=Node,RBAC`.
pub fn default_chain(
    reader: &Arc<dyn ObjectReader>,
    nodes: &Arc<node::NodeIndex>,
    rbac: &Arc<rbac::RbacAuthorizer>,
) -> AuthorizerChain {
    AuthorizerChain(vec![
        Arc::new(masters::Masters),
        Arc::new(always_allow::AlwaysAllowPaths),
        Arc::new(node::NodeAuthorizer::new(Arc::clone(reader), Arc::clone(nodes))),
        Arc::clone(rbac) as Arc<dyn Authorizer>,
    ])
}

impl AuthorizerChain {
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }

    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons: Vec<String> = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(Reason::None) => {}
                Decision::NoOpinion(reason) => {
                    let text = reason.to_string();
                    if !text.is_empty() {
                        reasons.push(text);
                    }
                }
                decided => return decided,
            }
        }
        if reasons.is_empty() {
            Decision::NoOpinion(Reason::None)
        } else {
            Decision::no_opinion(reasons.join("\n"))
        }
    }

    pub async fn rules_for(&self, user: &UserInfo, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        let mut errors = Vec::new();
        for authorizer in &self.0 {
            let own = authorizer.rules_for(user, namespace).await;
            all.rules.extend(own.rules);
            all.incomplete |= own.incomplete;
            errors.extend(own.error);
        }
        all.error = match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(format!("[{}]", errors.join(", "))),
        };
        all
    }
}
