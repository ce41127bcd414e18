//! The five modes of acting as another, and what each asks the authorizers.

use super::headers::Wanted;
use super::{Impersonated, extra};
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use crate::authz::{Attributes, AuthorizerChain, Busy, Decision, Forbidden, Reason};
use machinery_meta::UserInfo;
use machinery_meta::syntax::{dns1123_label, dns1123_subdomain};

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// Number of groups or extras from which on the right to all of them is checked first.
const MANY: usize = 4;

/// One way to act as another.
#[derive(Debug)]
pub(super) struct Mode {
    kind: Kind,
    /// Needed on the user that is acted as.
    verb: &'static str,
    /// Needed on the request: this and the request's verb.
    on: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

/// Modes in the order in which they are tried.
pub(super) const MODES: [Mode; 5] = [
    Mode {
        kind: Kind::AssociatedNode,
        verb: "impersonate:associated-node",
        on: "impersonate-on:associated-node:",
    },
    Mode {
        kind: Kind::ArbitraryNode,
        verb: "impersonate:arbitrary-node",
        on: "impersonate-on:arbitrary-node:",
    },
    Mode {
        kind: Kind::ServiceAccount,
        verb: "impersonate:serviceaccount",
        on: "impersonate-on:serviceaccount:",
    },
    Mode {
        kind: Kind::UserInfo,
        verb: "impersonate:user-info",
        on: "impersonate-on:user-info:",
    },
    Mode {
        kind: Kind::Legacy,
        verb: "impersonate",
        on: "",
    },
];

impl Mode {
    fn is_constrained(&self) -> bool {
        self.kind != Kind::Legacy
    }

    /// Reports whether the mode covers impersonation of this user by this requestor.
    fn applies(&self, wanted: &Wanted, requestor: &UserInfo) -> bool {
        let plain = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node(&wanted.name);
        match self.kind {
            Kind::AssociatedNode => {
                let bound = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
                let own = bound.and_then(|bound| match bound {
                    [one] => Some(one.as_str()),
                    _ => None,
                });
                plain && node.is_some() && node == own && service_account(&requestor.name).is_some()
            }
            Kind::ArbitraryNode => plain && node.is_some(),
            Kind::ServiceAccount => plain && service_account(&wanted.name).is_some(),
            Kind::UserInfo => node.is_none() && service_account(&wanted.name).is_none(),
            Kind::Legacy => true,
        }
    }
}

/// The name of a node in its user's name.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    dns1123_subdomain(name).is_empty().then_some(name)
}

/// Namespace and name of a service account in its user's name.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// The reason for which a mode does not serve.
#[derive(Debug)]
pub(super) enum Refusal {
    Forbidden(Forbidden),
    /// No authorizer has decided.
    Busy,
}

impl From<Forbidden> for Refusal {
    fn from(forbidden: Forbidden) -> Self {
        Self::Forbidden(forbidden)
    }
}

/// The requestor of one mode's questions, and whom they go to.
struct Questions<'a> {
    mode: &'a Mode,
    requestor: &'a UserInfo,
    chain: &'a AuthorizerChain,
}

/// The user that results; `None` where the mode is not for it.
///
/// # Errors
/// The first refusal.
pub(super) async fn check(
    mode: &Mode,
    request: &Attributes<'_>,
    wanted: &Wanted,
    chain: &AuthorizerChain,
) -> Result<Option<Impersonated>, Refusal> {
    if !mode.applies(wanted, request.user) {
        return Ok(None);
    }
    let masked = (mode.kind == Kind::AssociatedNode).then(|| on_any_node(request.user));
    let questions = Questions {
        mode,
        requestor: masked.as_ref().unwrap_or(request.user),
        chain,
    };
    if mode.is_constrained() {
        let verb = format!("{}{}", mode.on, request.verb);
        questions.ask(&verb, request.target).await?;
    }
    let groups = questions.username(wanted).await?;
    questions.uid(&wanted.uid).await?;
    questions.groups(&wanted.groups).await?;
    questions.extra(wanted).await?;
    Ok(Some(Impersonated {
        user: result(wanted, groups),
        constraint: mode.is_constrained().then_some(mode.verb),
    }))
}

/// A service account on some node, whichever it is: that it is the wanted one has been looked at.
fn on_any_node(requestor: &UserInfo) -> UserInfo {
    let mut user = requestor.clone();
    let keys = requestor.extra.keys().cloned().collect();
    user.extra = [(NODE_KEYS.to_owned(), keys)].into();
    user
}

/// The wanted user, with the groups that belong to it.
fn result(wanted: &Wanted, mut groups: Vec<String>) -> UserInfo {
    let has = |groups: &[String], group: &str| groups.iter().any(|own| own == group);
    let needed = if wanted.name == "system:anonymous" {
        Some(UserInfo::UNAUTHENTICATED)
    } else {
        Some(UserInfo::AUTHENTICATED).filter(|_| !has(&groups, UserInfo::UNAUTHENTICATED))
    };
    if let Some(needed) = needed.filter(|needed| !has(&groups, needed)) {
        groups.push(needed.to_owned());
    }
    UserInfo {
        name: wanted.name.clone(),
        uid: wanted.uid.clone(),
        groups,
        extra: wanted.extra.clone(),
    }
}

impl Questions<'_> {
    async fn ask(&self, verb: &str, target: AttributesTarget<'_>) -> Result<(), Refusal> {
        let attributes = Attributes {
            asker: None,
            user: self.requestor,
            verb,
            target,
        };
        let decision = self.chain.authorize(&attributes).await;
        let decision = decision.map_err(|Busy| Refusal::Busy)?;
        if decision.is_allowed() {
            return Ok(());
        }
        Err(Forbidden::new(&attributes, &decision).into())
    }

    async fn may(&self, target: ResourceTarget<'_>) -> Result<(), Refusal> {
        self.ask(self.mode.verb, AttributesTarget::Resource(target)).await
    }

    /// Reports whether a right to all of a kind makes questions about each needless.
    async fn may_all(&self, target: ResourceTarget<'_>) -> Result<bool, Refusal> {
        match self.may(target).await {
            Ok(()) => Ok(true),
            Err(Refusal::Forbidden(_)) => Ok(false),
            Err(Refusal::Busy) => Err(Refusal::Busy),
        }
    }

    /// A refusal without a decision of the authorizers.
    fn refuse(&self, target: ResourceTarget<'_>, why: &str) -> Refusal {
        let attributes = Attributes {
            asker: None,
            user: self.requestor,
            verb: self.mode.verb,
            target: AttributesTarget::Resource(target),
        };
        Forbidden::new(&attributes, &Decision::Deny(Reason::Text(why.to_owned()))).into()
    }

    /// Target of uids and extras, and in constrained modes of users and groups too.
    fn authentication(&self) -> ResourceTarget<'static> {
        ResourceTarget {
            group: "authentication.k8s.io",
            version: "v1",
            ..ResourceTarget::default()
        }
    }

    fn user_group(&self) -> ResourceTarget<'static> {
        let group = if self.mode.is_constrained() {
            "authentication.k8s.io"
        } else {
            ""
        };
        ResourceTarget {
            group,
            ..self.authentication()
        }
    }

    /// The groups of the user, once its name is allowed.
    async fn username(&self, wanted: &Wanted) -> Result<Vec<String>, Refusal> {
        let mut groups = wanted.groups.clone();
        let mut target = ResourceTarget {
            resource: "users",
            name: &wanted.name,
            ..self.user_group()
        };
        if let Some(name) = node(&wanted.name).filter(|_| self.mode.is_constrained()) {
            target.resource = "nodes";
            // The right is one to whatever node the account runs on.
            let any = self.mode.kind == Kind::AssociatedNode;
            target.name = if any { "*" } else { name };
            groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, name)) = service_account(&wanted.name) {
            target.resource = "serviceaccounts";
            target.namespace = namespace;
            target.name = name;
            if groups.is_empty() {
                groups = vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
        }
        self.may(target).await?;
        Ok(groups)
    }

    async fn uid(&self, uid: &str) -> Result<(), Refusal> {
        if uid.is_empty() {
            return Ok(());
        }
        self.may(ResourceTarget {
            resource: "uids",
            name: uid,
            ..self.authentication()
        })
        .await
    }

    async fn groups(&self, groups: &[String]) -> Result<(), Refusal> {
        let named = |name| ResourceTarget {
            resource: "groups",
            name,
            ..self.user_group()
        };
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refuse(named(""), "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == UserInfo::MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refuse(named(UserInfo::MASTERS), why));
            }
            if groups.len() >= MANY && self.may_all(named("*")).await? {
                return Ok(());
            }
        }
        for group in groups {
            self.may(named(group)).await?;
        }
        Ok(())
    }

    async fn extra(&self, wanted: &Wanted) -> Result<(), Refusal> {
        let keyed = |subresource, name| ResourceTarget {
            resource: "userextras",
            subresource,
            name,
            ..self.authentication()
        };
        let extra = &wanted.extra;
        if self.mode.is_constrained() {
            if let Some(problem) = extra::problem(extra) {
                return Err(self.refuse(keyed("", ""), &problem));
            }
            let many = extra.len() >= MANY || extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.may_all(keyed("*", "*")).await? {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.may(keyed(key, value)).await?;
            }
        }
        Ok(())
    }
}
