//! Authorization: the requests that a user may make.
//!
//! Authorizers decide in the order of [`default_chain`]; the first that allows or denies settles the request. If none
//! has an opinion, the request is refused with the reasons they gave, each behind its authorizer's name. A new
//! authorizer is a file here and a line there.

pub mod attributes;
pub mod forbidden;
pub mod masters;
pub mod node;
pub mod rbac;

pub use attributes::{Attributes, AttributesTarget};
pub use forbidden::Forbidden;

use machinery_meta::UserInfo;
use machinery_meta::reader::ObjectReader;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A boxed future, so that authorizers stay usable behind `dyn`.
pub type AuthzFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The decision of one authorizer, or of the chain.
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

/// The reason of a decision, formatted only when it is displayed.
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
    /// Upstream's name, which stands before its reasons.
    fn name(&self) -> &'static str;

    /// Its `--authorization-mode`; `None` for one that is always there, whose decisions are not counted.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision>;

    /// The rules this authorizer can name for a user in a namespace.
    fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> AuthzFuture<'a, UserRules>;
}

/// Rules of a user, as far as authorizers can list them (`SelfSubjectRulesReview`).
#[derive(Debug, Clone, Default)]
pub struct UserRules {
    pub rules: Vec<rbac::PolicyRule>,
    /// Some rules could not be named; `error` says why.
    pub incomplete: bool,
    pub error: Option<String>,
}

/// Authorizers in asking order. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AuthorizerChain(Arc<[Counted]>);

#[derive(Debug)]
struct Counted {
    authorizer: Arc<dyn Authorizer>,
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// Counts of decisions by the authorizer that made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionCount {
    pub mode: &'static str,
    pub name: &'static str,
    pub allowed: u64,
    pub denied: u64,
}

/// The chain of `--authorization-mode=Node,RBAC`.
pub fn default_chain(
    reader: &Arc<dyn ObjectReader>,
    nodes: &Arc<node::NodeIndex>,
    rbac: &Arc<rbac::RbacAuthorizer>,
) -> AuthorizerChain {
    AuthorizerChain::new(vec![
        Arc::new(masters::Masters),
        Arc::new(node::NodeAuthorizer::new(Arc::clone(reader), Arc::clone(nodes))),
        Arc::clone(rbac) as Arc<dyn Authorizer>,
    ])
}

impl AuthorizerChain {
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        let counted = authorizers.into_iter().map(|authorizer| Counted {
            authorizer,
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
        });
        Self(counted.collect())
    }

    /// Decisions since the start, of the authorizers that have a mode.
    pub fn decisions(&self) -> impl Iterator<Item = DecisionCount> {
        self.0.iter().filter_map(|counted| {
            Some(DecisionCount {
                mode: counted.authorizer.mode()?,
                name: counted.authorizer.name(),
                allowed: counted.allowed.load(Ordering::Relaxed),
                denied: counted.denied.load(Ordering::Relaxed),
            })
        })
    }

    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons: Vec<String> = Vec::new();
        for counted in &*self.0 {
            let decision = counted.authorizer.authorize(attributes).await;
            match &decision {
                Decision::NoOpinion(Reason::None) => {}
                Decision::NoOpinion(reason) => {
                    let text = reason.to_string();
                    if !text.is_empty() {
                        reasons.push(format!("{}: {text}", counted.authorizer.name()));
                    }
                }
                Decision::Allow(_) => {
                    counted.allowed.fetch_add(1, Ordering::Relaxed);
                    return decision;
                }
                Decision::Deny(_) => {
                    counted.denied.fetch_add(1, Ordering::Relaxed);
                    return decision;
                }
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
        for Counted { authorizer, .. } in &*self.0 {
            let own = authorizer.rules_for(user, namespace).await;
            all.rules.extend(own.rules);
            all.incomplete |= own.incomplete;
            errors.extend(own.error);
        }
        all.error = crate::aggregated(errors);
        all
    }
}
