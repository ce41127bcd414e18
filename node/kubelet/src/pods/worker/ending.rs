//! How a pod ends: its last status, what it leaves behind, and its object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};

use super::{Next, PodWorker, RETRY_AFTER, RETRY_WRITE_AFTER};
use crate::containers::control::grace_period;
use crate::containers::{files, resources};
use crate::pods::observed::ObservedPod;
use crate::pods::{full_name, name, namespace, termination};

impl PodWorker {
    /// The pod is to end or has ended: stop what runs, say how it ended, clean up, let it be deleted.
    pub(super) async fn end(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<Next, node_cri::CriError> {
        self.probes.stop_liveness_and_startup();
        let still =
            observed.running().next().is_some() || observed.sandboxes.iter().any(|sandbox| sandbox.ready);
        if still {
            self.report(pod, observed, false).await;
            self.stop_listening(pod, observed).await?;
        }
        let observed = self.observe().await?;
        if observed.running().next().is_some() {
            return Ok(self.after(RETRY_WRITE_AFTER));
        }
        self.probes.stop();
        if !self.report(pod, &observed, true).await {
            return Ok(self.after(RETRY_WRITE_AFTER));
        }
        self.ended = true;
        self.context.room.release(&self.uid);
        if !self.clean_up(pod) {
            return Ok(self.after(RETRY_AFTER));
        }
        if self.pod().metadata.deletion_timestamp.is_none() {
            return Ok(Next::Wait(None));
        }
        self.remove_everything(&observed).await?;
        Ok(self.delete_object(pod).await)
    }

    /// Stops everything, in less time if meanwhile less is given, and says so when it is ready no longer.
    async fn stop_listening(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<(), node_cri::CriError> {
        let context = Arc::clone(&self.context);
        let control = &context.control;
        let stopping = termination::stop_all(control, pod, observed, None);
        tokio::pin!(stopping);
        let mut grace = grace_period(pod);
        loop {
            tokio::select! {
                biased;
                outcome = &mut stopping => return outcome,
                () = self.inbox.wake.notified() => {
                    let shorter = if self.is_gone() { 1 } else { grace_period(&self.pod()) };
                    if shorter < grace {
                        grace = shorter;
                        termination::hurry(control, observed, grace).await;
                    }
                    // The API may not answer, and what runs is stopped all the same.
                    tokio::select! {
                        biased;
                        outcome = &mut stopping => return outcome,
                        _ = self.report(pod, observed, false) => {}
                    }
                }
            }
        }
    }

    /// Takes down volumes and groups; false if something is in the way.
    fn clean_up(&mut self, pod: &Pod) -> bool {
        if self.cleaned {
            return true;
        }
        if let Err(error) = self.volumes.tear_down() {
            tracing::warn!(pod = %full_name(pod), error = %error, "volumes not taken down");
            return false;
        }
        let config = &self.context.control.config;
        for group in resources::possible_pod_cgroups(&config.cgroup_root, &self.uid) {
            if let Err(error) = self.context.control.cgroups.remove(&group) {
                tracing::warn!(pod = %full_name(pod), error = %error, "pod group not removed");
                return false;
            }
        }
        self.cleaned = true;
        true
    }

    async fn remove_everything(&self, observed: &ObservedPod) -> Result<(), node_cri::CriError> {
        for sandbox in &observed.sandboxes {
            self.context.control.remove_sandbox(&sandbox.id).await?;
        }
        let folder = files::log_folder(&self.context.control.config, &self.pod());
        let _ = std::fs::remove_dir_all(folder);
        Ok(())
    }

    async fn delete_object(&self, pod: &Pod) -> Next {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace(pod));
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(name(pod), &params).await {
            Ok(_) => Next::Wait(None),
            Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => Next::Done,
            Err(error) => {
                tracing::debug!(pod = %full_name(pod), error = %error, "pod object not deleted");
                self.after(RETRY_WRITE_AFTER)
            }
        }
    }

    /// The object has gone without us: nothing to report, everything to remove.
    pub(super) async fn vanish(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<Next, node_cri::CriError> {
        self.probes.stop();
        termination::stop_all(
            &self.context.control,
            pod,
            observed,
            Some(grace_period(pod).min(1)),
        )
        .await?;
        if !self.clean_up(pod) {
            return Ok(self.after(RETRY_AFTER));
        }
        self.remove_everything(observed).await?;
        Ok(Next::Done)
    }
}
