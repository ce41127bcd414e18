//! Reads the target's scale and the metrics, writes scale, status and events.

use super::history::History;
use super::metrics::Replicas;
use super::monitor::{Histories, Monitor};
use super::object::{Autoscaler, AutoscalerView, TargetRef};
use super::round::{Measured, Next, Round, Settings, UnusableSelector};
use super::sources::{Selection, Sources};
use super::targets::Targets;
use crate::metrics::since;
use crate::pod_control::reference;
use crate::served_kinds::ServedKinds;
use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use machinery_client::client::decode;
use machinery_client::{ApiResource, Client, ClientError, Edit, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, ReconcileError, Reconciler, WriteTracker};
use machinery_runtime::Runtime;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// A look at a cache that is behind the last write is put off so long.
const BEHIND: Duration = Duration::from_secs(1);
/// Attempts to write a scale that others write too, and the wait between them, as upstream's `DefaultRetry`.
const SCALE_ATTEMPTS: u32 = 5;
const SCALE_RETRY: Duration = Duration::from_millis(10);

type AutoscalerRef = Arc<Object<AutoscalerView>>;

pub(super) struct AutoscalerReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) settings: Settings,
    pub(super) period: Duration,
    pub(super) autoscalers: Informer<AutoscalerView>,
    pub(super) targets: Arc<Targets>,
    pub(super) kinds: Arc<ServedKinds>,
    pub(super) sources: Sources,
    pub(super) histories: Histories,
    pub(super) monitor: Monitor,
    pub(super) own_writes: WriteTracker,
}

/// The target's `scale`.
struct Scale {
    resource: ApiResource,
    json: Bytes,
    replicas: Replicas,
    selector: String,
}

impl Reconciler for AutoscalerReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(autoscaler) = self.autoscalers.get(key) else {
                self.own_writes.forget(key);
                self.targets.forget(key);
                self.histories.lock().remove(key);
                return Ok(Outcome::Done);
            };
            if self.own_writes.cache_is_stale(&autoscaler) {
                return Ok(Outcome::RequeueAfter(BEHIND));
            }
            let decoded = autoscaler.decode()?;
            // One that failed is reconciled again when its time comes, as all others.
            if let Err(error) = self.look(&autoscaler, decoded).await {
                tracing::debug!(autoscaler = %key, error, "the autoscaler's size is not known");
            }
            Ok(Outcome::RequeueAfter(self.period))
        })
    }
}

impl AutoscalerReconciler {
    async fn look(&self, autoscaler: &AutoscalerRef, decoded: Autoscaler) -> Result<(), String> {
        let key = autoscaler.key();
        let before = decoded.status.clone();
        let times = (self.runtime.now(), self.runtime.monotonic());
        let of = (key.namespace.as_str(), autoscaler.header.generation);
        let mut round = Round::new(of, decoded, self.settings, times);
        // No other look has it: a key has one worker.
        let mut history = self.histories.lock().remove(key).unwrap_or_default();
        let outcome = self.act(key, &mut round, &mut history).await;
        history.desired = Some(round.status.desired_replicas);
        self.histories.lock().insert(key.clone(), history);
        let took = since(&self.runtime, times.1);
        self.monitor.looked(&round, outcome.is_err(), took);
        let written = match round.status == before {
            true => Ok(()),
            false => self.write_status(autoscaler, &mut round).await,
        };
        let about = reference(&ApiResource::of::<HorizontalPodAutoscaler>(), &autoscaler.header);
        for note in round.notes.drain(..) {
            match note.warning {
                true => self.recorder.warning(&about, note.reason, note.message),
                false => self.recorder.normal(&about, note.reason, note.message),
            }
        }
        outcome.and(written)
    }

    async fn act(&self, key: &ObjectKey, round: &mut Round<'_>, history: &mut History) -> Result<(), String> {
        let target = round.spec.scale_target_ref.clone();
        let scale = match self.scale(&key.namespace, &target).await {
            Ok(scale) => scale,
            Err(error) => {
                round.no_scale(&error);
                return Err(error);
            }
        };
        let next = match round.begin(scale.replicas, history) {
            Some(next) => next,
            None => match self.measure(key, round, &scale.selector).await {
                Ok(measured) => round.decide(measured, history),
                Err(why) => round.unusable(why),
            },
        };
        match next {
            Next::Rest => round.rested(),
            Next::Failed(error) => return Err(error),
            Next::Resize(desired, reason) => match self.resize(key, &target.name, scale, desired).await {
                Ok(()) => round.resized(desired, &reason, history),
                Err(error) => {
                    round.not_resized(desired, &reason, &error.chain());
                    return Err(error.chain());
                }
            },
        }
        round.problem.take().map_or(Ok(()), Err)
    }

    /// Reads `scale` of the target, by the first of its kind's addresses that has one. Cluster-scoped kinds are no targets: no user
    /// of a namespace may change them.
    async fn scale(&self, namespace: &str, target: &TargetRef) -> Result<Scale, String> {
        let (version, kind) = (target.api_version.as_str(), target.kind.as_str());
        let group = match version.split('/').collect::<Vec<_>>()[..] {
            [_] => "",
            [group, _] => group,
            _ => return Err(format!("unexpected GroupVersion string: {version}")),
        };
        let kinds = self.kinds.all().await.map_err(|error| error.chain())?;
        let resources: Vec<ApiResource> = kinds
            .iter()
            .map(|own| &own.resource)
            .filter(|own| own.namespaced && own.group == group && own.kind == kind)
            .cloned()
            .collect();
        if resources.is_empty() {
            return Err(format!("no matches for kind {kind:?} in group {group:?}"));
        }
        let mut first = None;
        for resource in &resources {
            match self.scale_at(namespace, &target.name, resource).await {
                Ok(scale) => return Ok(scale),
                Err(error) => first = first.or(Some(error.chain())),
            }
        }
        Err(first.unwrap_or_else(|| "unrecognized resource".to_owned()))
    }

    async fn scale_at(
        &self,
        namespace: &str,
        name: &str,
        resource: &ApiResource,
    ) -> Result<Scale, ClientError> {
        let path = resource.object_path(namespace, name, "scale");
        let json = self.client.get_path(&path, &[]).await?;
        let read: ReadScale = decode("a scale", &json)?;
        Ok(Scale {
            resource: resource.clone(),
            json,
            replicas: Replicas {
                spec: read.spec.replicas,
                status: read.status.replicas,
            },
            selector: read.status.selector,
        })
    }

    /// The pods that the target selects, and the metrics.
    async fn measure(
        &self,
        key: &ObjectKey,
        round: &Round<'_>,
        selector: &str,
    ) -> Result<Measured, UnusableSelector> {
        let unusable = |event, condition, message| UnusableSelector {
            event,
            condition,
            message,
        };
        if selector.is_empty() {
            let message = "selector is required".to_owned();
            return Err(unusable("SelectorRequired", "InvalidSelector", message));
        }
        let pods = self.targets.select(key, selector).await.map_err(|error| {
            let message =
                format!("couldn't convert selector into a corresponding internal selector object: {error}");
            unusable("InvalidSelector", "InvalidSelector", message)
        })?;
        let selecting = self.targets.selecting(&key.namespace, &pods).await;
        if selecting.len() > 1 {
            let shown = selecting
                .iter()
                .map(|name| format!("{{{name} {}}}", key.namespace));
            let shown = shown.collect::<Vec<_>>().join(" ");
            let message = format!(
                "pods by selector {} are controlled by more than one HPA (e.g. [{shown}])",
                cut(selector)
            );
            return Err(unusable("AmbiguousSelector", "AmbiguousSelector", message));
        }
        let of = Selection {
            namespace: &key.namespace,
            selector,
        };
        let (fetched, took) = self.sources.fetch(of, &round.spec.metrics, &self.runtime).await;
        Ok(Measured { pods, fetched, took })
    }

    /// Writes the size, anew where another was faster; a target that was emptied meanwhile is left alone, and the conflict
    /// reported.
    async fn resize(
        &self,
        key: &ObjectKey,
        name: &str,
        mut scale: Scale,
        desired: i32,
    ) -> Result<(), ClientError> {
        let target = ObjectKey::new(key.namespace.as_str(), name);
        let of_scale = ApiResource {
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            ..scale.resource.clone()
        };
        for attempt in 1.. {
            let mut edit = Edit::of(&of_scale, &scale.json)?;
            edit.set_in("spec", "replicas", &desired)?;
            let written = self
                .client
                .update(&scale.resource, &target, "scale", edit.body())
                .await;
            let lost = written.as_ref().is_err_and(ClientError::is_conflict);
            if !lost || attempt >= SCALE_ATTEMPTS {
                return written.map(drop);
            }
            self.runtime.sleep(SCALE_RETRY).await;
            if let Ok(latest) = self.scale_at(&key.namespace, name, &scale.resource).await {
                if latest.replicas.spec == 0 && scale.replicas.spec != 0 {
                    return written.map(drop);
                }
                scale = latest;
            }
        }
        Ok(())
    }

    async fn write_status(&self, autoscaler: &AutoscalerRef, round: &mut Round<'_>) -> Result<(), String> {
        let (resource, key) = (ApiResource::of::<HorizontalPodAutoscaler>(), autoscaler.key());
        let edited = Edit::of(&resource, &autoscaler.json()).and_then(|mut edit| {
            edit.set("status", &round.status)?;
            Ok(edit)
        });
        let written = match edited {
            Ok(edit) => {
                self.client
                    .writes()
                    .update(&resource, key, "status", edit.body())
                    .await
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(written) => {
                self.own_writes.record_write(key, &written);
                Ok(())
            }
            Err(error) => {
                round.warn("FailedUpdateStatus", error.to_string());
                Err(error.chain())
            }
        }
    }
}

#[derive(Deserialize)]
struct ReadScale {
    #[serde(default)]
    spec: ReadReplicas,
    #[serde(default)]
    status: ReadReplicas,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReadReplicas {
    replicas: i32,
    selector: String,
}

/// Bytes of a selector in a message: each autoscaler of one target would keep a long one in its status.
const MAX_SELECTOR_SHOWN: usize = 256;

/// The beginning of a selector.
fn cut(selector: &str) -> std::borrow::Cow<'_, str> {
    if selector.len() <= MAX_SELECTOR_SHOWN {
        return selector.into();
    }
    let end = selector.floor_char_boundary(MAX_SELECTOR_SHOWN);
    format!("{}…", &selector[..end]).into()
}
