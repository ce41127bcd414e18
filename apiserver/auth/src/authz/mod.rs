//! Authorization: the requests that a user may make.
//!
//! Authorizers decide in the order of the configuration ([`structured`]), members of `system:masters` before them all; the first that
//! allows or denies settles the request. If none
//! has an opinion, the request is refused with the reasons they gave, each behind its authorizer's name. A new
//! authorizer is a file here and a line in [`AuthorizerParts::authorizers`].

pub mod abac;
mod always;
pub mod attributes;
pub mod forbidden;
pub mod masters;
pub mod node;
pub mod rbac;
pub mod structured;
pub mod webhook;

pub use attributes::{Attributes, AttributesTarget};
pub use forbidden::Forbidden;
pub use structured::{AuthorizationConfiguration, AuthorizerRules};
pub use webhook::AuthorizationObserver;

use crate::review_webhook::KubeconfigError;
use apiserver_egress::Dialer;
use arc_swap::ArcSwap;
use machinery_meta::UserInfo;
use machinery_meta::reader::ObjectReader;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUSY: &str = "too many requests wait for the webhook";

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

    /// The reason why an authorizer could not decide, which is no answer to the client's question.
    pub fn error(&self) -> Option<&str> {
        match self.reason() {
            Reason::Failed { error, .. } => Some(error),
            _ => None,
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
    Binding(Arc<rbac::OwnedGrant>),
    /// An authorizer failed: what went wrong, and what others gave for a reason.
    Failed {
        reason: String,
        error: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Failed { reason, .. } => f.write_str(reason),
            Self::Binding(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

/// Nothing was decided, since too much of the same asker's is under way: the question may be answered a moment later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{BUSY}")]
pub struct Busy;

/// One source of decisions.
pub trait Authorizer: Send + Sync + fmt::Debug {
    /// Upstream's name, which stands before its reasons.
    fn name(&self) -> &str;

    /// Its `--authorization-mode`; `None` for one that is always there, whose decisions are not counted.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    /// The decision about a request.
    ///
    /// # Errors
    /// [`Busy`], which is no refusal.
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>>;

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

/// Authorizers in asking order, which a changed configuration replaces together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AuthorizerChain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    current: ArcSwap<Vec<Counted>>,
    /// Decisions of all authorizers that there ever were, by mode and name.
    counts: Mutex<BTreeMap<(&'static str, String), Arc<Counts>>>,
}

#[derive(Debug)]
struct Counted {
    authorizer: Arc<dyn Authorizer>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// Counts of decisions by the authorizer that made them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionCount {
    pub mode: &'static str,
    pub name: String,
    pub allowed: u64,
    pub denied: u64,
}

/// Parts that authorizers are made of.
#[derive(Clone)]
pub struct AuthorizerParts {
    pub reader: Arc<dyn ObjectReader>,
    pub nodes: Arc<node::NodeIndex>,
    pub rbac: Arc<rbac::RbacAuthorizer>,
    pub abac: Arc<abac::AbacAuthorizer>,
    pub dialer: Dialer,
    pub observer: Arc<dyn AuthorizationObserver>,
}

impl fmt::Debug for AuthorizerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizerParts").finish_non_exhaustive()
    }
}

impl AuthorizerParts {
    /// The authorizers of a configuration, and members of `system:masters` before them.
    ///
    /// # Errors
    /// The kubeconfig of a webhook cannot be used.
    pub fn authorizers(
        &self,
        rules: Vec<AuthorizerRules>,
    ) -> Result<Vec<Arc<dyn Authorizer>>, KubeconfigError> {
        let mut all: Vec<Arc<dyn Authorizer>> = vec![Arc::new(masters::Masters)];
        for rules in rules {
            all.push(match rules {
                AuthorizerRules::AlwaysAllow => Arc::new(always::AlwaysAllow),
                AuthorizerRules::AlwaysDeny => Arc::new(always::AlwaysDeny),
                AuthorizerRules::Node => {
                    let nodes = Arc::clone(&self.nodes);
                    Arc::new(node::NodeAuthorizer::new(Arc::clone(&self.reader), nodes))
                }
                AuthorizerRules::Rbac => Arc::clone(&self.rbac) as Arc<dyn Authorizer>,
                AuthorizerRules::Abac => Arc::clone(&self.abac) as Arc<dyn Authorizer>,
                AuthorizerRules::Webhook(rules) => {
                    let observer = Arc::clone(&self.observer);
                    Arc::new(webhook::WebhookAuthorizer::new(
                        rules,
                        self.dialer.clone(),
                        observer,
                    )?)
                }
            });
        }
        Ok(all)
    }
}

impl AuthorizerChain {
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        let chain = Self(Arc::new(Inner {
            current: ArcSwap::default(),
            counts: Mutex::default(),
        }));
        chain.replace(authorizers);
        chain
    }

    /// Puts others in the place of all authorizers, for every clone.
    pub fn replace(&self, authorizers: Vec<Arc<dyn Authorizer>>) {
        // Counters are kept by mode and name: a reload must not reset what a scrape has seen.
        let mut counts = self.0.counts.lock();
        let counted = authorizers.into_iter().map(|authorizer| {
            let counts = match authorizer.mode() {
                Some(mode) => Arc::clone(counts.entry((mode, authorizer.name().to_owned())).or_default()),
                None => Arc::default(),
            };
            Counted { authorizer, counts }
        });
        self.0.current.store(Arc::new(counted.collect()));
    }

    /// Decisions since the start, of the authorizers that have a mode.
    pub fn decisions(&self) -> Vec<DecisionCount> {
        let counts = self.0.counts.lock();
        let counts = counts.iter().map(|((mode, name), counts)| DecisionCount {
            mode,
            name: name.clone(),
            allowed: counts.allowed.load(Ordering::Relaxed),
            denied: counts.denied.load(Ordering::Relaxed),
        });
        counts.collect()
    }

    /// The decision of the first authorizer that has one.
    ///
    /// # Errors
    /// [`Busy`], which is no refusal.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Result<Decision, Busy> {
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        // One set for the whole decision, although a reload may replace it meanwhile.
        let current = self.0.current.load_full();
        for Counted { authorizer, counts } in &*current {
            // Busy ends the chain: a later authorizer must not allow what this one may deny.
            let decision = authorizer.authorize(attributes).await?;
            match &decision {
                Decision::NoOpinion(Reason::None) => {}
                Decision::NoOpinion(reason) => {
                    errors.extend(decision.error().map(str::to_owned));
                    let text = reason.to_string();
                    if !text.is_empty() {
                        reasons.push(format!("{}: {text}", authorizer.name()));
                    }
                }
                Decision::Allow(_) => {
                    counts.allowed.fetch_add(1, Ordering::Relaxed);
                    return Ok(decision);
                }
                Decision::Deny(_) => {
                    counts.denied.fetch_add(1, Ordering::Relaxed);
                    return Ok(decision);
                }
            }
        }
        let reason = reasons.join("\n");
        Ok(match (crate::aggregated(errors), reason.is_empty()) {
            (Some(error), _) => Decision::NoOpinion(Reason::Failed { reason, error }),
            (None, true) => Decision::NoOpinion(Reason::None),
            (None, false) => Decision::no_opinion(reason),
        })
    }

    /// Reports whether the authorizers allow an access that is checked in addition to the request itself.
    ///
    /// # Errors
    /// [`Busy`], which is no refusal.
    pub async fn allows(&self, attributes: &Attributes<'_>) -> Result<bool, Busy> {
        Ok(self.authorize(attributes).await?.is_allowed())
    }

    pub async fn rules_for(&self, user: &UserInfo, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        let mut errors = Vec::new();
        let current = self.0.current.load_full();
        for Counted { authorizer, .. } in &*current {
            let own = authorizer.rules_for(user, namespace).await;
            all.rules.extend(own.rules);
            all.incomplete |= own.incomplete;
            errors.extend(own.error);
        }
        all.error = crate::aggregated(errors);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, crowded};

    #[test]
    fn authorizer_that_is_busy_has_denied_nothing() {
        let chain = crowded();
        let user = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
        let attributes = Attributes {
            asker: None,
            user: &user,
            verb: "get",
            target: AttributesTarget::Path("/healthz"),
        };
        assert_eq!(block_on(chain.allows(&attributes)), Err(Busy));
        assert_eq!(chain.decisions()[0].denied, 0);
    }
}
