//! Attempts at work, measured: their beginnings, and what goes to the metrics when they end.

use crate::attempt::Attempt;
use crate::meter::{Clock, ExtensionPoint, Meter};
use crate::metrics::{AttemptResult, CacheSizes, Metrics, Scheduled};
use crate::nodes::NodeTable;
use crate::pod::PodInfo;
use crate::profile::Profiles;
use crate::queue::{Queue, QueuedPod};
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Single plugins are measured in one attempt of so many, as upstream measures one of ten.
const ATTEMPTS_A_SAMPLE: u64 = 10;

/// An attempt that has not ended: its pod is tried or bound.
#[derive(Debug)]
struct Try {
    uid: Box<str>,
    begun: Duration,
    queued: QueuedPod,
}

/// See the module; without metrics it does nothing.
#[derive(Default)]
pub(crate) struct Measuring {
    to: Option<(Metrics, Clock)>,
    begun: u64,
    tries: HashMap<ObjectKey, Try>,
}

impl fmt::Debug for Measuring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measuring")
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}

impl Measuring {
    pub(crate) fn new(metrics: Metrics, clock: Clock) -> Self {
        Self {
            to: Some((metrics, clock)),
            ..Self::default()
        }
    }

    /// Begins an attempt.
    pub(crate) fn begin(&mut self, queued: &QueuedPod) -> Attempt {
        let attempt = Attempt::new(&queued.pod);
        let Some((_, clock)) = &self.to else {
            return attempt;
        };
        let begun = clock();
        let own = Try {
            uid: queued.pod.uid().into(),
            begun,
            queued: queued.clone(),
        };
        self.tries.insert(queued.pod.key.clone(), own);
        let sampled = self.begun.is_multiple_of(ATTEMPTS_A_SAMPLE);
        self.begun = self.begun.wrapping_add(1);
        attempt.measured(Meter::new(Arc::clone(clock), sampled))
    }

    /// The same attempt with nothing computed yet.
    pub(crate) fn again(pod: &Arc<PodInfo>, attempt: Attempt) -> Attempt {
        match attempt.into_meter() {
            Some(meter) => Attempt::new(pod).measured(meter),
            None => Attempt::new(pod),
        }
    }

    /// Records the decision about a pod.
    pub(crate) fn decided(&self, attempt: &Attempt) {
        let Some(((metrics, clock), meter)) = self.to.as_ref().zip(attempt.meter()) else {
            return;
        };
        let pod = attempt.pod();
        if let Some(own) = self.tries.get(&pod.key) {
            metrics.placed(clock().saturating_sub(own.begun));
        }
        metrics.ran(&pod.pod.spec.scheduler_name, &meter.take_runs());
    }

    /// The attempt at the pod is over.
    pub(crate) fn end(&mut self, pod: &PodInfo, result: AttemptResult) {
        let Some((metrics, clock)) = &self.to else {
            return;
        };
        if self.tries.get(&pod.key).is_none_or(|own| *own.uid != *pod.uid()) {
            return;
        }
        let Some(own) = self.tries.remove(&pod.key) else {
            return;
        };
        let now = clock();
        let took = now.saturating_sub(own.begun);
        metrics.attempt(&pod.pod.spec.scheduler_name, result, took);
        if result == AttemptResult::Scheduled {
            metrics.scheduled(Scheduled {
                attempts: own.queued.attempts,
                since_first_attempt: now.saturating_sub(own.queued.first_tried),
                after_flush: own.queued.timed_out,
            });
        }
    }

    /// The pod is gone while its claims were being bound: the end of that is not reported.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.tries.remove(key);
    }

    /// The same of a pod whose name another may have by now.
    pub(crate) fn forget_pod(&mut self, pod: &PodInfo) {
        if self.tries.get(&pod.key).is_some_and(|own| *own.uid == *pod.uid()) {
            self.tries.remove(&pod.key);
        }
    }

    pub(crate) fn preemption_was_tried(&self, victims: Option<usize>) {
        if let Some((metrics, _)) = &self.to {
            metrics.preemption_was_tried(victims);
        }
    }

    pub(crate) fn volumes_not_bound(&self, pod: &PodInfo) {
        if let Some((metrics, _)) = &self.to {
            metrics.volumes_not_bound();
        }
        self.not_pre_bound(pod);
    }

    /// The end of a wait for conditions of a device.
    pub(crate) fn conditions_waited(
        &self,
        labels: (&str, &str, &'static str),
        since: Duration,
        has_conditions: bool,
    ) {
        if let Some((metrics, clock)) = &self.to {
            let took = clock().saturating_sub(since);
            metrics.conditions_waited(labels, took, has_conditions);
        }
    }

    /// The end of an attempt whose pod cannot be bound, since its claims are not ready.
    pub(crate) fn not_pre_bound(&self, pod: &PodInfo) {
        if let Some((metrics, clock)) = &self.to {
            let begun = self.tries.get(&pod.key).map_or(Duration::ZERO, |own| own.begun);
            let took = clock().saturating_sub(begun);
            let profile = &pod.pod.spec.scheduler_name;
            metrics.point_ran(profile, ExtensionPoint::PreBind, crate::meter::ERROR, took);
        }
    }

    /// Hands on what the scheduler counted for itself.
    pub(crate) fn publish(&self, queue: &mut Queue, nodes: &NodeTable, profiles: &Profiles, assumed: usize) {
        let Some((metrics, _)) = &self.to else {
            return;
        };
        metrics.set_queue(&mut queue.tallies);
        metrics.add_asked(profiles);
        metrics.set_cache(CacheSizes {
            nodes: nodes.node_count(),
            pods: nodes.pod_count(),
            assumed_pods: assumed,
        });
    }
}
