//! The loop that watches the node and evicts. Decisions are elsewhere, pure.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use node_cri::v1;

use super::config::{IMMEDIATE_GRACE_PERIOD_SECONDS, REASON};
use super::local_storage::{self, Exceeded};
use super::message::{EvictionMessage, message};
use super::observations::{Observations, Readings};
use super::ranking::{Candidate, FilesOf, rank};
use super::reclaim::reclaim;
use super::signal::Starved;
use super::state::{EvictionState, Verdict, met};
use super::thresholds::EvictionThreshold;
use super::usage::{PodUsage, usage};
use crate::api::events::EventType;
use crate::managers::ManagerContext;
use crate::node::pressure::Pressure;
use crate::pods::disruption::Disruption;
use crate::pods::{full_name, is_critical, spec, uid};

/// Pause between two observations.
const OBSERVE_AFTER: Duration = Duration::from_secs(10);
/// Time that an evicted pod has to end before the node is observed again, and the pause between two looks at it.
const CLEANUP: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// Watches the node for ever.
pub(crate) async fn run(context: ManagerContext) {
    let config = &context.config;
    let mut manager = EvictionManager {
        thresholds: config.eviction.thresholds(&config.reserve),
        state: EvictionState::default(),
        image_fs: None,
        context: context.clone(),
    };
    loop {
        let evicted = manager.round().await;
        if evicted.is_empty() {
            context.runtime.sleep(OBSERVE_AFTER).await;
        } else {
            manager.wait_until_ended(&evicted).await;
        }
    }
}

struct EvictionManager {
    context: ManagerContext,
    thresholds: Vec<EvictionThreshold>,
    state: EvictionState,
    /// A path on the file system of images where it is not the node's; `None` before the runtime has answered.
    image_fs: Option<Option<PathBuf>>,
}

impl EvictionManager {
    /// Observes once, and returns the uids of the pods that are evicted.
    async fn round(&mut self) -> Vec<String> {
        let Some(observations) = self.observe().await else {
            return Vec::new();
        };
        let observed_at = self.context.runtime.monotonic();
        let transition = self.context.config.eviction.pressure_transition_period;
        let verdict = self
            .state
            .observe(&self.thresholds, &observations, transition, observed_at);
        self.report(verdict.pressure);
        let above_their_limits = self.evict_above_limits().await;
        if !above_their_limits.is_empty() {
            return above_their_limits;
        }
        match verdict.thresholds.first().copied() {
            Some(threshold) => {
                self.evict_for(threshold, &verdict, &observations, observed_at)
                    .await
            }
            None => Vec::new(),
        }
    }

    fn report(&self, pressure: Pressure) {
        let workers = &self.context.workers;
        workers.storage.look_at_everyone(pressure.disk);
        if workers.pressure.get() != pressure {
            tracing::info!(?pressure, "pressure of the node has changed");
            workers.pressure.replace(pressure);
        }
    }

    async fn observe(&mut self) -> Option<Observations> {
        let image_fs = self.image_fs().await;
        let (context, config) = (&self.context, self.context.config.clone());
        let (vitals, cgroups) = (context.vitals.clone(), context.workers.control.cgroups.clone());
        let limit = config
            .reserve
            .pods_limits(&context.facts.machine)
            .memory_limit_bytes;
        let read = move || {
            let pods = (config.groups().all(), limit);
            Readings::take(
                vitals.as_ref(),
                cgroups.as_ref(),
                (&pods.0, pods.1),
                &config.data_dir,
                image_fs.as_deref(),
            )
        };
        let readings = context.runtime.blocking(read).await.ok()?;
        Some(readings.observations())
    }

    /// The file system of images, where it is not that of the agent. A runtime that does not say has none of its own.
    async fn image_fs(&mut self) -> Option<PathBuf> {
        if let Some(known) = &self.image_fs {
            return known.clone();
        }
        let context = &self.context;
        let answer = context
            .workers
            .control
            .cri
            .image_fs_info(v1::ImageFsInfoRequest {});
        let answer = answer.await.ok()?;
        let mut all = answer.image_filesystems.into_iter();
        let path = PathBuf::from(all.next()?.fs_id?.mountpoint);
        let (vitals, data_dir, own) = (
            context.vitals.clone(),
            context.config.data_dir.clone(),
            path.clone(),
        );
        let differs = move || {
            let devices = (vitals.device(&own), vitals.device(&data_dir));
            matches!(devices, (Ok(images), Ok(node)) if images != node)
        };
        let differs = context.runtime.blocking(differs).await.ok()?;
        let found = differs.then_some(path);
        self.image_fs = Some(found.clone());
        found
    }

    fn has_image_fs(&self) -> bool {
        self.image_fs.as_ref().is_some_and(Option::is_some)
    }

    /// Evicts each pod that is above a limit of its own.
    async fn evict_above_limits(&self) -> Vec<String> {
        let pods = self.candidates();
        let limited: Vec<&Arc<Pod>> = pods.iter().filter(|pod| local_storage::has_limit(pod)).collect();
        if limited.is_empty() {
            return Vec::new();
        }
        let Some(usages) = self.usages().await else {
            return Vec::new();
        };
        let mut evicted = Vec::new();
        for pod in limited {
            let usage = usages.get(uid(pod));
            let found = usage.and_then(|own| local_storage::exceeded(pod, own, self.has_image_fs()));
            let Some(Exceeded { signal, message }) = found else {
                continue;
            };
            let eviction = Disruption {
                reason: REASON,
                message,
                condition: None,
                grace_seconds: Some(IMMEDIATE_GRACE_PERIOD_SECONDS),
                annotations: BTreeMap::new(),
                has_event: true,
            };
            if self.evict(pod, eviction, signal) {
                evicted.push(uid(pod).to_owned());
            }
        }
        evicted
    }

    /// Reclaims for a threshold: unused images and files, and if that is not enough, a pod.
    async fn evict_for(
        &self,
        threshold: EvictionThreshold,
        verdict: &Verdict,
        observations: &Observations,
        observed_at: Duration,
    ) -> Vec<String> {
        let (context, resource) = (&self.context, threshold.signal.resource());
        let text = format!("Attempting to reclaim {}", resource.name());
        let node = context.workers.node.lock().clone();
        let events = &context.workers.events;
        events.node(&node, EventType::Warning, "EvictionThresholdMet", text);
        if self.reclaims(threshold, resource).await {
            return Vec::new();
        }
        let mut candidates = self.ranked(threshold).await;
        for own in &verdict.thresholds {
            let age = context.runtime.monotonic().saturating_sub(observed_at);
            context.workers.evictions.lock().decided(own.signal.name(), age);
        }
        // One at a time: the next is decided on what is free then.
        let evicted = candidates.drain(..).find(|own| {
            let message = message(
                resource,
                &own.pod,
                own.usage.as_ref(),
                &verdict.thresholds,
                observations,
            );
            self.evict(
                &own.pod,
                self.disruption(&threshold, &own.pod, message),
                threshold.signal.name(),
            )
        });
        evicted
            .map(|own| vec![uid(&own.pod).to_owned()])
            .unwrap_or_default()
    }

    fn disruption(&self, threshold: &EvictionThreshold, pod: &Pod, message: EvictionMessage) -> Disruption {
        let of_the_pod = spec(pod).termination_grace_period_seconds.unwrap_or(30);
        let config = &self.context.config.eviction;
        Disruption {
            reason: REASON,
            condition: Some(message.text.clone()),
            message: message.text,
            grace_seconds: Some(config.grace_period_seconds(threshold, of_the_pod)),
            annotations: message.annotations,
            has_event: true,
        }
    }

    /// Takes back what is unused, and reports whether that is enough for all thresholds.
    async fn reclaims(&self, threshold: EvictionThreshold, resource: Starved) -> bool {
        let of_images = FilesOf::signal(threshold.signal, self.has_image_fs()).root;
        if !matches!(resource, Starved::Storage | Starved::Inodes) || !of_images {
            return false;
        }
        reclaim(&self.context).await;
        let mut again = Self {
            context: self.context.clone(),
            thresholds: Vec::new(),
            state: EvictionState::default(),
            image_fs: self.image_fs.clone(),
        };
        let now = again.observe().await;
        now.is_some_and(|now| met(&self.thresholds, &now, true).is_empty())
    }

    async fn ranked(&self, threshold: EvictionThreshold) -> Vec<Candidate> {
        if matches!(threshold.signal.resource(), Starved::Storage | Starved::Inodes) {
            // Sizes of all pods, not only of those with limits.
            let storage = &self.context.workers.storage;
            storage.look_at_everyone(true);
            storage.next_pass(&self.context.runtime).await;
        }
        let usages = self.usages().await.unwrap_or_default();
        let with_usage = |pod: Arc<Pod>| Candidate {
            usage: usages.get(uid(&pod)).cloned(),
            pod,
        };
        let mut candidates: Vec<Candidate> = self.candidates().into_iter().map(with_usage).collect();
        let files = FilesOf::signal(threshold.signal, self.has_image_fs());
        rank(&mut candidates, threshold.signal, files);
        candidates
    }

    /// Pods that were admitted, have not ended, and are not on their way to it for the node.
    fn candidates(&self) -> Vec<Arc<Pod>> {
        let pods = &self.context.pods;
        let may_end = |uid: &str| pods.is_admitted(uid) && !pods.has_ended(uid) && !pods.is_disrupted(uid);
        let all = pods.list().into_iter();
        all.filter(|pod| may_end(uid(pod))).collect()
    }

    async fn usages(&self) -> Option<HashMap<String, PodUsage>> {
        let known = self.context.workers.storage.known();
        let usages = usage(&self.context, &known).await;
        usages
            .map_err(|error| tracing::warn!(error, "usage of pods not known"))
            .ok()
    }

    fn evict(&self, pod: &Pod, eviction: Disruption, signal: &'static str) -> bool {
        if is_critical(pod) {
            tracing::warn!(pod = %full_name(pod), "a critical pod is not evicted");
            return false;
        }
        tracing::info!(pod = %full_name(pod), signal, why = eviction.message, "pod evicted");
        let begun = self.context.pods.disrupt(uid(pod), eviction);
        if begun {
            self.context.workers.evictions.lock().evicted(signal);
        }
        begun
    }

    async fn wait_until_ended(&self, evicted: &[String]) {
        let (patience, pause) = CLEANUP;
        let runtime = &self.context.runtime;
        let until = runtime.monotonic() + patience;
        while runtime.monotonic() < until {
            runtime.sleep(pause).await;
            if evicted.iter().all(|uid| self.context.pods.has_ended(uid)) {
                return;
            }
        }
        tracing::warn!(pods = evicted.len(), "evicted pods have not ended yet");
    }
}
