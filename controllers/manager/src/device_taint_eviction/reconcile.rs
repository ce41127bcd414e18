//! Ends pods, and writes the conditions of rules.

use super::ROW;
use super::plan::{Eviction, Known, evicting, of_pod};
use super::status::{Counts, condition};
use super::view::{AllocationView, DevicesView, NO_EXECUTE, NONE, RuleView};
use crate::pod_control::reference;
use crate::views::{PodView, seconds};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Object, Patch};
use machinery_meta::{ObjectKey, Uid};
use machinery_reconcile::{EventRecorder, Outcome, QueueKey, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counter, Histogram};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two conditions of a rule while pods end because of it.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
const EVENT: &str = "DeviceTaintManagerEviction";

/// Keys to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Pod(ObjectKey),
    Rule(ObjectKey),
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Pod(key) | Self::Rule(key) => &key.namespace,
        }
    }
}

/// Steps taken so far; an entry goes with its pod or rule.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pods: BTreeMap<ObjectKey, NotedPod>,
    /// Pods that ended because of a rule.
    evicted: HashMap<Uid, u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum NotedPod {
    Waits(Uid),
    Evicted(Uid),
}

pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) pods: Informer<PodView>,
    pub(super) claims: Informer<AllocationView>,
    pub(super) slices: Informer<DevicesView>,
    pub(super) rules: Informer<RuleView>,
    pub(super) deletions: Counter,
    pub(super) durations: Histogram,
    pub(super) noted: Mutex<Noted>,
}

impl Reconciler for Evictor {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Pod(key) => self.pod(key).await,
                Key::Rule(key) => self.rule(key).await,
            }
        })
    }
}

impl Evictor {
    fn with<T>(&self, look: impl FnOnce(&mut Noted) -> T) -> T {
        look(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn eviction(&self, pod: &Object<PodView>, rules: &[Arc<Object<RuleView>>]) -> Option<Eviction> {
        let known = Known {
            claims: &|key| self.claims.get(key),
            slices: &|pool| self.slices.by_index(DevicesView::POOL, pool),
            rules,
        };
        of_pod(pod, known)
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.header.is_deleting()) else {
            self.with(|noted| noted.pods.remove(key));
            return Ok(Outcome::Done);
        };
        let before = self.with(|noted| noted.pods.remove(key));
        if before == Some(NotedPod::Evicted(pod.uid().clone())) {
            // Its end has not come back yet.
            self.with(|noted| noted.pods.extend(before.map(|own| (key.clone(), own))));
            return Ok(Outcome::Done);
        }
        let Some(eviction) = self.eviction(&pod, &evicting(&self.rules, None)) else {
            if before == Some(NotedPod::Waits(pod.uid().clone())) {
                self.event(&pod, "Cancelling deletion");
            }
            return Ok(Outcome::Done);
        };
        let waits = eviction.when.duration_since(self.runtime.now());
        let waits = Duration::try_from(waits).unwrap_or(Duration::ZERO);
        self.with(|noted| noted.pods.insert(key.clone(), NotedPod::Waits(pod.uid().clone())));
        if !waits.is_zero() {
            return Ok(Outcome::RequeueAfter(waits));
        }
        self.evict(&pod, &eviction).await?;
        Ok(Outcome::Done)
    }

    fn event(&self, pod: &Object<PodView>, message: &'static str) {
        let about = reference(&ApiResource::of::<Pod>(), &pod.header);
        self.recorder.normal(&about, EVENT, message);
    }

    async fn evict(&self, pod: &Object<PodView>, eviction: &Eviction) -> Result<(), ReconcileError> {
        let pods = ApiResource::of::<Pod>();
        self.event(pod, "Marking for deletion");
        let now = self.runtime.now();
        let body = json!({"metadata": {"uid": pod.uid().0}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "observedGeneration": pod.header.generation, "lastTransitionTime": seconds(now),
        }]}});
        let marked = self
            .client
            .patch(&pods, pod.key(), "status", &Patch::Strategic, &body)
            .await;
        match marked {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(ReconcileError::doing("marking a pod for eviction")(error)),
            Ok(_) => {}
        }
        let deleted = self
            .client
            .delete(&pods, pod.key(), &DeleteOptions::uid(pod.uid()))
            .await;
        match deleted {
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            Err(error) => return Err(ReconcileError::doing("evicting a pod")(error)),
            Ok(_) => {}
        }
        self.deletions.inc();
        let late = now.duration_since(eviction.when);
        self.durations.observe(late.as_secs_f64());
        self.with(|noted| {
            let own = NotedPod::Evicted(pod.uid().clone());
            noted.pods.insert(pod.key().clone(), own);
            for rule in &eviction.rules {
                *noted.evicted.entry(rule.clone()).or_default() += 1;
            }
        });
        Ok(())
    }

    async fn rule(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(rule) = self.rules.get(key) else {
            let mut known = BTreeSet::new();
            self.rules.for_each(|rule| {
                known.insert(rule.uid().clone());
            });
            self.with(|noted| noted.evicted.retain(|uid, _| known.contains(uid)));
            return Ok(Outcome::Done);
        };
        let now = self.runtime.now();
        let before = rule.condition.as_ref();
        let generation = rule.header.generation;
        let current = before.filter(|own| own.observed_generation == generation);
        let is_said = current.is_some() && *rule.rule.taint.effect == *NONE;
        if is_said {
            // It is reported once.
            return Ok(Outcome::Done);
        }
        let since = current.and_then(|own| own.last_transition_time);
        let since = since.map(|time| Duration::try_from(now.duration_since(time)).unwrap_or(Duration::ZERO));
        if let Some(left) = since
            .and_then(|since| STATUS_PERIOD.checked_sub(since))
            .filter(|left| !left.is_zero())
        {
            return Ok(Outcome::RequeueAfter(left));
        }
        let counts = self.counts(&rule);
        let wanted = condition(&rule.rule.taint.effect, generation, counts);
        let same = before.is_some_and(|own| {
            let own = (&own.status, &own.reason, &own.message, own.observed_generation);
            own == (
                &wanted.status,
                &wanted.reason,
                &wanted.message,
                wanted.observed_generation,
            )
        });
        if !same {
            let body = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
                "metadata": {"name": key.name, "uid": rule.uid().0}, "status": {"conditions": [{
                    "type": wanted.kind, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
                    "observedGeneration": generation, "lastTransitionTime": seconds(now)}]}});
            let patch = Patch::Apply {
                manager: ROW.name.to_owned(),
                force: true,
            };
            let kind = ApiResource::of::<DeviceTaintRule>();
            let written = self.client.patch(&kind, key, "status", &patch, &body).await;
            written.map_err(ReconcileError::doing("writing the condition of a rule"))?;
        }
        Ok(
            match counts.pending_pods > 0 && *rule.rule.taint.effect == *NO_EXECUTE {
                true => Outcome::RequeueAfter(STATUS_PERIOD),
                false => Outcome::Done,
            },
        )
    }

    fn counts(&self, rule: &Object<RuleView>) -> Counts {
        let effect = &*rule.rule.taint.effect;
        let mut counts = Counts {
            evicted: self.with(|noted| noted.evicted.get(rule.uid()).copied().unwrap_or(0)),
            ..Counts::default()
        };
        if effect != NO_EXECUTE && effect != NONE {
            return counts;
        }
        let rules = evicting(&self.rules, Some(rule.uid()));
        let mut namespaces = BTreeSet::new();
        for pod in self.pods_with_claims() {
            let eviction = self.eviction(&pod, &rules);
            if eviction.is_some_and(|own| own.rules.contains(rule.uid())) {
                counts.pending_pods += 1;
                namespaces.insert(pod.namespace().to_owned());
            }
        }
        counts.pending_namespaces = namespaces.len();
        self.claims.for_each(|claim| {
            counts.allocated += claim.devices.iter().filter(|own| rule.selects(own.id())).count();
        });
        self.slices
            .for_each(|slice| counts.published += slice.device_ids().filter(|id| rule.selects(*id)).count());
        counts
    }

    fn pods_with_claims(&self) -> Vec<Arc<Object<PodView>>> {
        let mut all = Vec::new();
        self.pods.for_each(|pod| {
            if pod.device_claims.is_some() && !pod.header.is_deleting() {
                all.push(Arc::clone(pod));
            }
        });
        all
    }
}
