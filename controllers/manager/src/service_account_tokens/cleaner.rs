//! Marks tokens that accounts list, that no client has used for a year and that no pod mounts as invalid, and deletes them
//! after another year.

use super::token_secrets;
use super::views::{AccountView, TokenView};
use crate::config::Config;
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use futures::future::BoxFuture;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use machinery_client::{
    ApiResource, Client, ClientError, DeleteOptions, Informer, Object, Patch, Precondition,
};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "legacy-serviceaccount-token-cleaner-controller",
    queue: "legacy_serviceaccount_token_cleaner",
    service_account: "legacy-service-account-token-cleaner",
    default: true,
    start,
};

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Interval at which a Secret is looked at, as upstream's.
const INTERVAL: Duration = Duration::from_secs(24 * 3_600);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let secrets = token_secrets(context);
    let accounts: Informer<AccountView> = context.informers.of::<ServiceAccount, _>();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&secrets, |change| {
            change.new.as_ref().map(|own| own.key().clone())
        })
        .needs(&accounts);
    controller.run(Cleaner {
        reader: context.informers.client().clone(),
        writer: context.client(ROW.service_account),
        secrets,
        accounts,
        runtime: context.runtime.clone(),
        config: Arc::clone(&context.config),
    })
}

struct Cleaner {
    /// Pods are read as the controller manager; upstream's role of the cleaner does not have them.
    reader: Client,
    writer: Client,
    secrets: Informer<TokenView>,
    accounts: Informer<AccountView>,
    runtime: Runtime,
    config: Arc<Config>,
}

/// Decision on an unused token.
#[derive(Debug, PartialEq, Eq)]
enum Unused {
    Keep,
    Mark,
    Delete,
}

/// The day of a label.
fn day(text: &str) -> Option<Date> {
    text.parse().ok().filter(|_| text.len() == "2006-01-02".len())
}

/// Decides by a Secret's own times and labels; `before` is a period ago.
fn judge(secret: &Object<TokenView>, before: Timestamp) -> Unused {
    let header = &secret.header;
    let created = header
        .creation_timestamp
        .as_deref()
        .and_then(|at| at.parse::<Timestamp>().ok());
    if header.is_deleting() || created.is_none_or(|at| at >= before) {
        return Unused::Keep;
    }
    let limit = before.to_zoned(TimeZone::UTC).date();
    // What cannot be read says nothing, and the token stays.
    if header
        .label(LAST_USED)
        .is_some_and(|used| day(used).is_none_or(|used| used >= limit))
    {
        return Unused::Keep;
    }
    match header.label(INVALID_SINCE).and_then(day) {
        None => Unused::Mark,
        Some(since) if since >= limit => Unused::Keep,
        Some(_) => Unused::Delete,
    }
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(secret) = self.secrets.get(key) else {
                return Ok(Outcome::Done);
            };
            match self.clean(&secret).await {
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                other => other.map_err(ReconcileError::doing("cleaning service account tokens"))?,
            }
            Ok(Outcome::RequeueAfter(INTERVAL))
        })
    }
}

impl Cleaner {
    async fn clean(&self, secret: &Object<TokenView>) -> Result<(), ClientError> {
        let now = self.runtime.now();
        let before = now.saturating_sub(self.period()).unwrap_or(Timestamp::MIN);
        let judged = judge(secret, before);
        let needed = judged == Unused::Keep || !self.is_listed(secret);
        if needed || !self.has_tracked_since(before).await? || self.is_mounted(secret).await? {
            return Ok(());
        }
        let resource = ApiResource::of::<Secret>();
        if judged == Unused::Mark {
            let today = now.to_zoned(TimeZone::UTC).date().to_string();
            let change = json!({"metadata": {"uid": secret.uid().0, "labels": {INVALID_SINCE: today}}});
            let marked = self
                .writer
                .patch(&resource, secret.key(), "", &Patch::Merge, &change);
            return marked.await.map(drop);
        }
        let options = DeleteOptions {
            precondition: Precondition {
                uid: None,
                revision: Some(secret.revision),
            },
            ..DeleteOptions::default()
        };
        self.writer
            .delete(&resource, secret.key(), &options)
            .await
            .map(drop)
    }

    fn period(&self) -> SignedDuration {
        let period = self.config.legacy_token_clean_up_period;
        SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX)
    }

    /// Only tokens that their account lists were made without a request.
    fn is_listed(&self, secret: &Object<TokenView>) -> bool {
        let key = ObjectKey::new(secret.namespace(), &*secret.account);
        let account = self.accounts.get(&key);
        account.is_some_and(|own| {
            let same = secret.account_uid.is_empty() || *secret.account_uid == *own.uid().0;
            same && own.lists(secret.name())
        })
    }

    /// The use of tokens has been noted for a whole period.
    async fn has_tracked_since(&self, before: Timestamp) -> Result<bool, ClientError> {
        let key = ObjectKey::new("kube-system", TRACKING);
        let map: Value = self.writer.get_as(&ApiResource::of::<ConfigMap>(), &key).await?;
        let since = map["data"]["since"].as_str().and_then(day);
        // From the day after on, it was noted all day.
        let first = since.and_then(|since| since.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok());
        Ok(first.is_some_and(|first| first.timestamp() <= before))
    }

    /// A pod of the namespace names the Secret, for whatever use.
    async fn is_mounted(&self, secret: &Object<TokenView>) -> Result<bool, ClientError> {
        let pods: Value = self
            .reader
            .list_as(&ApiResource::of::<Pod>(), secret.namespace(), &[])
            .await?;
        let pods = pods["items"].as_array();
        Ok(pods
            .into_iter()
            .flatten()
            .any(|pod| names(&pod["spec"], secret.name())))
    }
}

/// Some text in there is this one.
fn names(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own == text,
        Value::Array(items) => items.iter().any(|item| names(item, text)),
        Value::Object(members) => members.values().any(|member| names(member, text)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_account_tokens::ACCOUNT_NAME;
    use machinery_client::object::object_of;

    #[track_caller]
    fn check(labels: &Value, created: &str, expected: Unused) {
        let json = json!({"metadata": {"name": "token", "namespace": "a", "labels": labels,
            "creationTimestamp": created, "annotations": {ACCOUNT_NAME: "sa"}}});
        let secret = object_of::<TokenView>(&json.to_string()).unwrap();
        let before = "2025-11-22T12:00:00Z".parse().unwrap();
        assert_eq!(judge(&secret, before), expected, "{labels} {created}");
    }

    #[test]
    fn unused_tokens_are_marked_and_then_deleted_as_upstreams() {
        let old = "2024-01-01T00:00:00Z";
        check(&json!({}), old, Unused::Mark);
        check(&json!({}), "2025-11-22T12:00:00Z", Unused::Keep);
        check(&json!({LAST_USED: "2025-11-21"}), old, Unused::Mark);
        check(&json!({LAST_USED: "2025-11-22"}), old, Unused::Keep);
        check(&json!({LAST_USED: "yesterday"}), old, Unused::Keep);
        check(&json!({INVALID_SINCE: "2025-11-21"}), old, Unused::Delete);
        check(&json!({INVALID_SINCE: "2025-11-22"}), old, Unused::Keep);
        check(&json!({INVALID_SINCE: "2025"}), old, Unused::Mark);
        check(
            &json!({INVALID_SINCE: "2025-01-01", LAST_USED: "2026-01-01"}),
            old,
            Unused::Keep,
        );
    }

    #[test]
    fn pod_that_names_a_secret_uses_it() {
        let pod =
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "token"}}]}}]});
        assert!(names(&pod, "token"));
        assert!(!names(&pod, "tok"));
    }
}
