//! Webhooks that authorize: SubjectAccessReviews to another server.
//!
//! A webhook is called for requests that its conditions match, unless it answered the same question lately. A call that fails is an error
//! of the decision: the request is denied or left to the next authorizers, as the failure policy says, and the server
//! answers 500 where no other authorizer allows it.

mod cache;
mod conditions;
mod review;

pub use conditions::MatchConditions;

use super::structured::WebhookRules;
use super::{Attributes, AttributesTarget, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use crate::review_webhook::{
    CallMade, KubeconfigError, ReviewCallError, ReviewFlow, ReviewWebhook, share_in,
};
use apiserver_egress::Dialer;
use cache::Cache;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use review::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

/// Longest question that is remembered; upstream's.
const MAX_REMEMBERED_BYTES: usize = 10_000;

/// Bytes that are kept of an answer's reason, which answers, audit events and the memory have.
const MAX_REASON_BYTES: usize = 4 << 10;

/// A question without an answer.
enum Failure {
    /// Its asker has too many under way.
    Busy,
    /// The failure policy decides.
    Webhook(String),
}

/// The share of calls that a question takes (see [`share_in`]). The sender of a SubjectAccessReview chooses the namespace that it names,
/// which therefore does not count.
fn flow_of<'a>(attributes: &Attributes<'a>) -> Cow<'a, str> {
    let asker = attributes.asker.unwrap_or(&attributes.user.name);
    let namespace = match &attributes.target {
        AttributesTarget::Resource(target) if attributes.asker.is_none() => target.namespace,
        _ => "",
    };
    share_in(asker, namespace)
}

/// Takes figures of webhooks, by name.
pub trait AuthorizationObserver: Send + Sync + fmt::Debug {
    /// A call came to `success`, `timeout` or `error`.
    fn called(&self, name: &str, result: &str, seconds: f64);
    /// A failure was taken for no opinion.
    fn failed_open(&self, name: &str, result: &str);
    /// Conditions were evaluated.
    fn matched(&self, name: &str, matched: &Result<bool, String>, seconds: f64);
}

/// See the module.
#[derive(Debug)]
pub struct WebhookAuthorizer {
    rules: WebhookRules,
    webhook: ReviewWebhook,
    cache: Mutex<Cache>,
    observer: Arc<dyn AuthorizationObserver>,
    runtime: Runtime,
}

impl WebhookAuthorizer {
    /// # Errors
    /// The kubeconfig cannot be used.
    pub fn new(
        rules: WebhookRules,
        dialer: Dialer,
        observer: Arc<dyn AuthorizationObserver>,
    ) -> Result<Self, KubeconfigError> {
        let runtime = dialer.runtime().clone();
        Ok(Self {
            webhook: ReviewWebhook::open(&rules.kubeconfig, dialer, rules.timeout)?,
            cache: Mutex::default(),
            rules,
            observer,
            runtime,
        })
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Result<Decision, Busy> {
        match self.matches(attributes) {
            Ok(true) => {}
            Ok(false) => return Ok(Decision::NoOpinion(Reason::None)),
            Err(why) => return Ok(self.failed(why)),
        }
        let spec = review::spec(attributes, &self.rules.version);
        let question = cache::digest_of(&spec.to_string());
        let known = self.cache.lock().get(&question, self.runtime.monotonic());
        let status = match known {
            Some(status) => status,
            None => match self.call(attributes, &spec).await {
                Ok(status) => {
                    if remembered_bytes(attributes) < MAX_REMEMBERED_BYTES {
                        self.remember(question, &status);
                    }
                    status
                }
                // A user that sends too many at once has no way past the webhook by it.
                Err(Failure::Busy) => return Err(Busy),
                Err(Failure::Webhook(why)) => return Ok(self.failed(why)),
            },
        };
        Ok(decision(status))
    }

    fn matches(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.rules.conditions.is_empty() {
            return Ok(true);
        }
        let begun = self.runtime.monotonic();
        let matched = self.rules.conditions.hold(attributes);
        let took = self.runtime.monotonic().saturating_sub(begun).as_secs_f64();
        self.observer.matched(&self.rules.name, &matched, took);
        matched
    }

    fn remember(&self, question: cache::Digest, status: &Status) {
        let ttl = match status.allowed {
            true => self.rules.authorized_ttl,
            false => self.rules.unauthorized_ttl,
        };
        if !ttl.is_zero() {
            let until = self.runtime.monotonic() + ttl;
            self.cache.lock().put(question, until, status.clone());
        }
    }

    async fn call(&self, attributes: &Attributes<'_>, spec: &Value) -> Result<Status, Failure> {
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{}", self.rules.version),
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        let name = &self.rules.name;
        let made = |call: CallMade| {
            self.observer
                .called(name, result(call.code, call.timed_out), call.took.as_secs_f64());
        };
        let flow = flow_of(attributes);
        let flow = ReviewFlow::of_user(&flow);
        let reviewing = self
            .webhook
            .review("SubjectAccessReview", &review, flow, &made, pending());
        let answer = reviewing.await.map_err(|error| {
            if error == ReviewCallError::Busy {
                return Failure::Busy;
            }
            tracing::warn!(webhook = name, %error, "failed to make webhook authorizer request");
            if !self.rules.denies_on_failure {
                let (code, timed_out) = match &error {
                    ReviewCallError::Answered { code, .. } => {
                        (Some(*code).filter(|code| *code != 200), false)
                    }
                    ReviewCallError::TimedOut { .. } => (None, true),
                    _ => (None, false),
                };
                self.observer.failed_open(name, result(code, timed_out));
            }
            Failure::Webhook(error.to_string())
        })?;
        let status = answer.get("status").unwrap_or(&Value::Null);
        let status = Option::<Status>::deserialize(status);
        let unreadable = || "the answer of the webhook has a status that cannot be read".to_owned();
        let status = status.map_err(|_| Failure::Webhook(unreadable()))?;
        let mut status = status.unwrap_or_default();
        status
            .reason
            .truncate(status.reason.floor_char_boundary(MAX_REASON_BYTES));
        Ok(status)
    }

    fn failed(&self, error: String) -> Decision {
        let reason = Reason::Failed {
            reason: String::new(),
            error,
        };
        match self.rules.denies_on_failure {
            true => Decision::Deny(reason),
            false => Decision::NoOpinion(reason),
        }
    }
}

/// Upstream's word for the result of a call.
fn result(code: Option<u16>, timed_out: bool) -> &'static str {
    match code {
        Some(200) => "success",
        Some(504) => "timeout",
        None if timed_out => "timeout",
        _ => "error",
    }
}

fn decision(status: Status) -> Decision {
    let reason = match status.reason {
        empty if empty.is_empty() => Reason::None,
        text => Reason::Text(text),
    };
    match (status.denied, status.allowed) {
        (true, true) => Decision::Deny(Reason::Failed {
            reason: reason.to_string(),
            error: "webhook subject access review returned both allow and deny response".to_owned(),
        }),
        (true, false) => Decision::Deny(reason),
        (false, true) => Decision::Allow(reason),
        (false, false) => Decision::NoOpinion(reason),
    }
}

/// Bytes of a question that the client chooses.
fn remembered_bytes(attributes: &Attributes<'_>) -> usize {
    attributes.verb.len()
        + match &attributes.target {
            AttributesTarget::Path(path) => path.len(),
            AttributesTarget::Resource(target) => {
                target.namespace.len()
                    + target.group.len()
                    + target.version.len()
                    + target.resource.len()
                    + target.subresource.len()
                    + target.name.len()
            }
        }
}

impl Authorizer for WebhookAuthorizer {
    fn name(&self) -> &str {
        &self.rules.name
    }

    fn mode(&self) -> Option<&'static str> {
        Some("Webhook")
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(self.decide(attributes))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules {
            rules: Vec::new(),
            incomplete: true,
            error: Some("webhook authorizer does not support user rule resolution".to_owned()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::attributes::ResourceTarget;

    #[track_caller]
    fn check(asker: Option<&str>, user: &str, namespace: &str, expected: &str) {
        let user = UserInfo::named(user, [UserInfo::AUTHENTICATED]);
        let target = AttributesTarget::Resource(ResourceTarget {
            resource: "pods",
            namespace,
            ..ResourceTarget::default()
        });
        let attributes = Attributes {
            asker,
            user: &user,
            verb: "get",
            target,
        };
        assert_eq!(flow_of(&attributes), expected);
    }

    #[test]
    fn authorization_flow_is_of_account_or_namespace() {
        check(None, "anna", "blue", "anna");
        check(Some("ben"), "anna", "blue", "ben");
        let tenants = "system:serviceaccount:blue";
        check(None, "system:serviceaccount:blue:a", "green", tenants);
        check(Some("system:serviceaccount:blue:b"), "anna", "green", tenants);
        // One controller does not wait for another's, nor one namespace for another.
        let controller = "system:serviceaccount:kube-system:job-controller";
        check(None, controller, "blue", &format!("{controller} in blue"));
        check(None, controller, "", controller);
        check(Some(controller), "anna", "blue", controller);
    }
}
