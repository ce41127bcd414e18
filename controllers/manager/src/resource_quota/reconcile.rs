//! Adds up, compares, writes status.

use super::monitors::{Monitors, counted};
use super::views::QuotaView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_client::{ApiResource, Client, Edit, Informer, Object};
use machinery_meta::{ObjectKey, Quantity};
use machinery_reconcile::{Outcome, QueueKey, ReconcileError, Reconciler, WorkQueue};
use machinery_runtime::Runtime;
use machinery_semantics::ResourceList;
use machinery_semantics::quota::Quota;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Subject of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Quota(ObjectKey),
    /// The resources that the server serves.
    Resources,
    /// Every quota, and stores that none needs any more.
    Sweep,
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Quota(key) => &key.namespace,
            Self::Resources | Self::Sweep => "",
        }
    }
}

/// `--resource-quota-sync-period`.
const RESYNC_PERIOD: Duration = Duration::from_secs(300);
/// Pause between two questions what is served, however often that changes.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(2);
/// A quota that counts what is not listed yet is reconciled again after this time, which doubles up to [`RESYNC_PERIOD`]: what an
/// API extension answers may never list.
const NOT_LISTED_YET: Duration = Duration::from_millis(100);

pub(super) struct QuotaReconciler {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) quotas: Informer<QuotaView>,
    pub(super) monitors: Arc<Monitors>,
    pub(super) queue: WorkQueue<Key>,
    pub(super) waits: Waits,
}

/// Waits of quotas that count what is not listed yet: how often each was looked at.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<BTreeMap<ObjectKey, u32>>);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the next wait.
    pub(super) fn next(&self, key: &ObjectKey) -> Duration {
        let mut all = self.lock();
        let looks = all.entry(key.clone()).or_default();
        let wait = NOT_LISTED_YET.saturating_mul(2_u32.saturating_pow(*looks));
        *looks = looks.saturating_add(1);
        wait.min(RESYNC_PERIOD)
    }

    /// The quota waits no more.
    pub(super) fn end(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }
}

impl Reconciler for QuotaReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Quota(key) => self.quota(key).await,
                Key::Resources => self.resources().await,
                Key::Sweep => {
                    self.monitors.sweep();
                    self.look_at_all();
                    Ok(Outcome::RequeueAfter(RESYNC_PERIOD))
                }
            }
        })
    }
}

/// The usage of a quota's objects.
#[derive(Debug, Default)]
struct Usage {
    used: ResourceList,
    is_whole: bool,
}

impl QuotaReconciler {
    /// Every quota may count what is served now.
    async fn resources(&self) -> Result<Outcome, ReconcileError> {
        let discovered = self.client.discover().await;
        let discovered = discovered.map_err(ReconcileError::doing("discovering what is served"))?;
        if self.monitors.serve(&discovered) {
            self.look_at_all();
        }
        if let Some(again) = discovered.again_after() {
            // What changes meanwhile asks once more, after the pause.
            self.queue.add_after(Key::Resources, again);
        }
        Ok(Outcome::Rest(DISCOVERY_PAUSE))
    }

    fn look_at_all(&self) {
        self.quotas
            .for_each(|quota| self.queue.add(Key::Quota(quota.key().clone())));
    }

    async fn quota(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(quota) = self.quotas.get(key) else {
            self.waits.end(key);
            return Ok(Outcome::Done);
        };
        let usage = self.usage(&quota.quota, &key.namespace);
        let status = status(&quota.quota, &usage.used);
        if is_dirty(&quota.quota, &status) {
            self.write(&quota, &status).await?;
        }
        if usage.is_whole {
            self.waits.end(key);
            return Ok(Outcome::Done);
        }
        Ok(Outcome::RequeueAfter(self.waits.next(key)))
    }

    /// Usage of what is listed; a resource that is not served has none.
    fn usage(&self, quota: &Quota, namespace: &str) -> Usage {
        let mut usage = Usage {
            is_whole: true,
            ..Usage::default()
        };
        let of_devices = quota.wanted.iter().any(|(name, _)| name.contains('/'));
        if of_devices {
            usage.is_whole = self.monitors.needs_classes();
        }
        let classes = self.monitors.classes();
        for resource in counted(quota, &classes) {
            let Some(monitor) = self.monitors.of(&resource) else {
                continue;
            };
            if !monitor.has_synced() {
                usage.is_whole = false;
                continue;
            }
            let mut own = monitor.used(namespace, &quota.scopes, &classes, self.runtime.now());
            own.0.retain(|name, _| quota.wanted.0.contains_key(name));
            let names = quota.wanted.iter().map(|(name, _)| name);
            for name in names.filter(|name| monitor.evaluator.matches_resource(name, &classes)) {
                own.0.entry(name.to_owned()).or_insert(Quantity::default());
            }
            usage.used.add(&own);
        }
        usage
    }

    async fn write(&self, quota: &Object<QuotaView>, status: &Status) -> Result<(), ReconcileError> {
        let resource = ApiResource::of::<ResourceQuota>();
        let mut edit = Edit::of(&resource, &quota.json())?;
        let whole = ResourceQuotaStatus {
            hard: Some(api(&status.hard)),
            used: Some(api(&status.used)),
        };
        edit.set("status", &whole)?;
        let written = self
            .client
            .update(&resource, quota.key(), "status", edit.body())
            .await;
        match written {
            Err(error) if !error.is_not_found() => Err(ReconcileError::doing("writing status")(error)),
            _ => Ok(()),
        }
    }
}

fn api(list: &ResourceList) -> BTreeMap<String, ApiQuantity> {
    let all = list.iter();
    all.map(|(name, amount)| (name.to_owned(), ApiQuantity(amount.to_string())))
        .collect()
}

/// The status that a quota should have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) hard: ResourceList,
    pub(super) used: ResourceList,
}

/// The status with the usage that was found; of what was not counted it stays.
pub(super) fn status(quota: &Quota, found: &ResourceList) -> Status {
    let mut used = quota.used.clone().unwrap_or_default();
    used.0.extend(found.0.clone());
    used.0.retain(|name, _| quota.wanted.0.contains_key(name));
    Status {
        hard: quota.wanted.clone(),
        used,
    }
}

pub(super) fn is_dirty(quota: &Quota, status: &Status) -> bool {
    quota.hard.as_ref() != Some(&status.hard) || quota.used.as_ref() != Some(&status.used)
}
