//! The end of a round without actions, and the time of the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{Next, PodWorker, RETRY_AFTER, RETRY_WRITE_AFTER};
use crate::containers::files;
use crate::pods::observed::{ContainerState, ObservedPod};
use crate::pods::plan::Plan;
use crate::pods::spec;

/// First and longest backoff of volumes that fail: upstream's (`exponentialbackoff`).
const VOLUME_RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));
/// Volumes of objects are brought up to date at this interval even without an event.
const REFRESH_AFTER: Duration = Duration::from_secs(600);
/// Ended containers kept per name, for their logs and last state.
const ENDED_CONTAINERS_KEPT: usize = 2;

impl PodWorker {
    /// Ends a round without actions: writes the status, refreshes volumes, and returns the time of the next round.
    pub(super) async fn idle(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        plan: &Plan,
    ) -> Result<Next, node_cri::CriError> {
        self.resize_done(pod);
        let written = self.report(pod, observed, false).await;
        // A server that takes no status has no objects either, and is tried again before long.
        let calls_again = self.volumes.publish_again_at().is_some_and(|at| at <= self.now());
        // What an earlier agent has had shown is the driver's to say again.
        let is_taken_over = !self.volumes_are_up && may_have_drivers(pod);
        if written && (has_object_volumes(pod) || calls_again || is_taken_over) {
            self.set_up_volumes(pod).await;
        }
        // Claims of which nothing is written down are their drivers' to say again, and would not be taken back.
        let is_unprepared = self.context.dra.has_unknown(pod) && !self.prepare_claims(pod).await;
        self.collect_ended(observed).await;
        self.save().await;
        let mut times = vec![
            plan.requeue_at,
            self.deadline(pod),
            self.context.objects.next_renewal(&self.uid),
            self.volumes.publish_again_at().filter(|at| *at > self.now()),
        ];
        if has_object_volumes(pod) {
            times.push(self.now().checked_add(REFRESH_AFTER).ok());
        }
        if is_unprepared {
            times.push(self.now().checked_add(RETRY_AFTER).ok());
        }
        if !written {
            times.push(self.now().checked_add(RETRY_WRITE_AFTER).ok());
        }
        if self.volume_failures > 0 {
            let pause = volume_pause(self.volume_failures);
            times.push(self.now().checked_add(pause).ok());
        }
        Ok(Next::Wait(times.into_iter().flatten().min()))
    }

    /// Removes ended containers beyond those kept.
    pub(super) async fn collect_ended(&mut self, observed: &ObservedPod) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for found in &observed.containers {
            let count = seen.entry(found.name.as_str()).or_default();
            *count += 1;
            if *count > ENDED_CONTAINERS_KEPT && found.state == ContainerState::Exited {
                self.last_seen = None;
                // The observation lists a container that is removed here.
                let request = node_cri::v1::RemoveContainerRequest {
                    container_id: found.id.clone(),
                };
                // A failure is not reported: the next round finds it again.
                let _ = self.context.control.cri.remove_container(request).await;
                let log = std::path::PathBuf::from(&found.log_path);
                let _ = self
                    .lane
                    .run("removing a log", move || files::remove_log(&log))
                    .await;
            }
        }
    }
}

/// Returns the pause before the next try after so many failures of volumes in a row; without one, how long after another failed step.
pub(super) fn volume_pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return RETRY_AFTER;
    };
    let (first, last) = VOLUME_RETRY_AFTER;
    first.saturating_mul(1 << doublings.min(8)).min(last)
}

fn has_object_volumes(pod: &Pod) -> bool {
    spec(pod).volumes.iter().flatten().any(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
    })
}

/// Reports whether a volume of the pod is a driver's, or may be.
fn may_have_drivers(pod: &Pod) -> bool {
    let mut volumes = spec(pod).volumes.iter().flatten();
    volumes.any(|volume| {
        volume.csi.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_fail_are_tried_again_as_upstreams() {
        let pauses: Vec<u128> = (1..=10)
            .map(|failures| volume_pause(failures).as_millis())
            .collect();
        let expected = [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 122_000, 122_000,
        ];
        assert_eq!(pauses, expected);
        assert_eq!(volume_pause(u32::MAX), VOLUME_RETRY_AFTER.1);
        assert_eq!(volume_pause(0), RETRY_AFTER, "another step failed");
    }
}
