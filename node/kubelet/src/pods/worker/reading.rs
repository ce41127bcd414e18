//! Observation of the pod in the runtime, repeated until it shows what has happened.

use std::time::Duration;

use super::PodWorker;
use crate::pods::observed::{ContainerState, ObservedPod, observe, observe_again};

/// First and longest pause while the runtime's bookkeeping lags behind its events.
const CATCH_UP: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(500));

impl PodWorker {
    /// Reads what the runtime has, listing it only where something may have been made or removed.
    pub(super) async fn read_runtime(&mut self) -> Result<ObservedPod, node_cri::CriError> {
        // Taken: whatever happens from here on, also where this is dropped, is looked at whole by the next.
        let last = self.last_seen.take();
        let listed = !self
            .inbox
            .unlisted
            .swap(false, std::sync::atomic::Ordering::AcqRel);
        if let Some(last) = last.filter(|_| listed) {
            let control = &self.context.control;
            let seen = observe_again(&self.context.runtime, &control.cri, &last).await?;
            if let Some(seen) = seen.filter(|seen| !self.is_behind(seen) && !self.awaits_reason(seen)) {
                self.behind = false;
                return Ok(seen);
            }
        }
        self.observe().await
    }

    /// Reads what the runtime has. Its event stream is ahead of its own bookkeeping: what is known to
    /// have ended is read again until it is seen so, or, if that takes long, after what can be done now. A reason that may
    /// still change is waited for.
    pub(super) async fn observe(&mut self) -> Result<ObservedPod, node_cri::CriError> {
        let mut pause = CATCH_UP.0;
        loop {
            let observed = observe(&self.context.runtime, &self.context.control.cri, &self.uid).await?;
            self.behind = self.is_behind(&observed);
            // Bounded: a runtime that never catches up (a lost record) must not keep the pod's other containers
            // from starting.
            let gave_up = pause > CATCH_UP.1;
            if !self.awaits_reason(&observed) && (!self.behind || gave_up) {
                return Ok(observed);
            }
            self.context.runtime.sleep(pause).await;
            pause *= 2;
        }
    }

    /// Reports whether a container's end may still get another reason. One that ends with its pod is not waited for.
    fn awaits_reason(&self, observed: &ObservedPod) -> bool {
        if self.ended || self.failure.is_some() || self.inbox.ending.is_cancelled() {
            return false;
        }
        let now = self.now();
        let mut containers = observed.containers.iter();
        containers.any(|container| container.reason_may_change(now))
    }

    fn is_behind(&self, observed: &ObservedPod) -> bool {
        let containers = observed
            .containers
            .iter()
            .map(|found| (&found.id, found.state == ContainerState::Running));
        let sandboxes = observed.sandboxes.iter().map(|found| (&found.id, found.ready));
        // Invariant: an owner is known before the ended are looked at. An event either finds the owner
        // and wakes us, or is found here.
        let mut owners = self.context.owners.lock();
        containers
            .clone()
            .chain(sandboxes.clone())
            .for_each(|(id, _)| drop(owners.insert(id.clone(), self.uid.clone())));
        drop(owners);
        let mut exited = self.context.exited.lock();
        let mut behind = false;
        for (id, runs) in containers.chain(sandboxes) {
            match runs {
                true => behind |= exited.contains(id),
                false => drop(exited.remove(id)),
            }
        }
        behind
    }
}
