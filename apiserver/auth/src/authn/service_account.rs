//! Service account tokens: signature, issuer, audience, times, and that account and bound objects still exist.

use super::legacy_service_account::{TokenTracker, TokenUse};
use super::token::{ShownToken, TokenAuthenticator, accepted};
use super::{Authenticated, AuthenticationNotes, AuthnFuture, Outcome, Refusal};
use crate::jwt::{self, Claims, ObjectClaim, VerifyingKey};
use crate::trusted;
use jiff::Timestamp;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{ObjectKey, UserInfo};
use std::fmt;
use std::sync::Arc;

/// Clocks may differ by this much, as upstream allows.
pub(super) const LEEWAY_SECONDS: i64 = 60;

/// See the module.
pub struct ServiceAccountTokens {
    reader: Arc<dyn ObjectReader>,
    keys: Vec<VerifyingKey>,
    /// The first one signs; tokens of the others are still accepted.
    issuers: Vec<String>,
    /// Takes the uses of projected tokens.
    tracker: Option<Arc<dyn TokenTracker>>,
}

impl fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccountTokens")
            .field("issuers", &self.issuers)
            .finish_non_exhaustive()
    }
}

impl ServiceAccountTokens {
    pub fn new(reader: Arc<dyn ObjectReader>, keys: Vec<VerifyingKey>, issuers: Vec<String>) -> Self {
        Self {
            reader,
            keys,
            issuers,
            tracker: None,
        }
    }

    /// Has the uses of projected tokens counted.
    #[must_use]
    pub fn tracked(mut self, tracker: Arc<dyn TokenTracker>) -> Self {
        self.tracker = Some(tracker);
        self
    }

    async fn identify(&self, token: &str, audiences: &[String], now: Timestamp) -> Outcome {
        // Another issuer's token is another's business.
        if !jwt::unverified_issuer(token).is_some_and(|issuer| self.issuers.contains(&issuer)) {
            return Outcome::Pass;
        }
        match self.check(token, audiences, now).await {
            Ok(found) => Outcome::User(found),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    async fn check(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Authenticated, Refusal> {
        let claims: Claims =
            jwt::verify(&self.keys, token).map_err(|error| Refusal::new(error.to_string()))?;
        let good_for = accepted(&claims.aud, audiences)?;
        check_times(&claims, now)?;
        self.check_objects(&claims, now).await?;
        self.count(&claims, now);
        Ok(Authenticated {
            user: user(&claims),
            audiences: Some(good_for),
            remarks: remarks(&claims, now),
        })
    }

    /// Tokens without a time of renewal are not those of a pod, and not counted.
    fn count(&self, claims: &Claims, now: Timestamp) {
        let after = claims.kubernetes.warnafter.filter(|after| *after != 0);
        if let Some((tracker, after)) = self.tracker.as_ref().zip(after) {
            let is_stale = now.as_second() > after;
            tracker.count(if is_stale {
                TokenUse::Stale
            } else {
                TokenUse::Valid
            });
        }
    }

    async fn check_objects(&self, claims: &Claims, now: Timestamp) -> Result<(), Refusal> {
        let own = &claims.kubernetes;
        if claims.sub
            != format!(
                "system:serviceaccount:{}:{}",
                own.namespace, own.serviceaccount.name
            )
        {
            return Err(Refusal::new(
                "the token's subject is not its service account".to_owned(),
            ));
        }
        let bound = [
            (
                Some(&own.serviceaccount),
                "serviceaccounts",
                own.namespace.as_str(),
            ),
            (own.secret.as_ref(), "secrets", own.namespace.as_str()),
            (own.pod.as_ref(), "pods", own.namespace.as_str()),
            // A pod's token also names its node, which may go before the pod does.
            (own.node.as_ref().filter(|_| own.pod.is_none()), "nodes", ""),
        ];
        for (claim, resource, namespace) in bound {
            if let Some(claim) = claim {
                self.check_object(claim, resource, namespace, now).await?;
            }
        }
        Ok(())
    }

    async fn check_object(
        &self,
        claim: &ObjectClaim,
        resource: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let key = ObjectKey::new(namespace, &claim.name);
        let Some(found) = trusted::get(&*self.reader, "", resource, &key).await else {
            return Err(Refusal::new(format!("{resource} {key} of the token is gone")));
        };
        if deleted_long_ago(&found, now) {
            return Err(Refusal::new(format!(
                "{resource} {key} of the token has been deleted"
            )));
        }
        if found.header.uid.0 != claim.uid {
            return Err(Refusal::new(format!(
                "{resource} {key} is not the one the token was made for"
            )));
        }
        Ok(())
    }
}

/// An object whose grace period is over (plus the leeway) no longer lends its identity.
fn deleted_long_ago(found: &ReadObject, now: Timestamp) -> bool {
    let deleted = found
        .header
        .deletion_timestamp
        .as_deref()
        .and_then(|at| at.parse::<Timestamp>().ok());
    deleted.is_some_and(|at| at.as_second() < now.as_second() - LEEWAY_SECONDS)
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), Refusal> {
    let now = now.as_second();
    if claims.exp + LEEWAY_SECONDS < now {
        return Err(Refusal::new("service account token has expired".to_owned()));
    }
    if claims.nbf - LEEWAY_SECONDS > now || claims.iat - LEEWAY_SECONDS > now {
        return Err(Refusal::new("service account token is not valid yet".to_owned()));
    }
    Ok(())
}

/// A token that lives on only because clients did not renew it is marked in the audit log.
fn remarks(claims: &Claims, now: Timestamp) -> AuthenticationNotes {
    let mut remarks = AuthenticationNotes::default();
    let late = claims.kubernetes.warnafter.map(|after| now.as_second() - after);
    if let Some(late) = late.filter(|late| *late > 0) {
        remarks.annotations.push((
            "authentication.k8s.io/stale-token",
            format!("subject: {}, seconds after warning threshold: {late}", claims.sub),
        ));
    }
    remarks
}

fn user(claims: &Claims) -> UserInfo {
    const PREFIX: &str = "authentication.kubernetes.io/";
    let own = &claims.kubernetes;
    let mut user = UserInfo::service_account(&own.namespace, &own.serviceaccount.name);
    user.uid.clone_from(&own.serviceaccount.uid);
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra
                .insert(format!("{PREFIX}{key}"), vec![value.to_owned()]);
        }
    };
    if !claims.jti.is_empty() {
        add("credential-id", &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &own.pod {
        add("pod-name", &pod.name);
        add("pod-uid", &pod.uid);
    }
    if let Some(node) = &own.node {
        add("node-name", &node.name);
        add("node-uid", &node.uid);
    }
    user
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(self.identify(shown.token, shown.audiences, shown.now))
    }
}
