//! End of a pod: its last status, the removal of its files, and the deletion of its object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};

use super::{Next, PodWorker, RETRY_AFTER, RETRY_WRITE_AFTER};
use crate::containers::files;
use crate::containers::stopping::{Hook, grace_period};
use crate::pods::observed::ObservedPod;
use crate::pods::{full_name, is_static, name, namespace, termination};
use node_cri::image_view::remove_views;

/// Outcome of stopping a pod.
enum Stopped {
    Outcome(Result<(), node_cri::CriError>),
    /// It has not ended, and is to do so within this many seconds.
    Shortened(i64),
}

impl PodWorker {
    /// The pod is to end or has ended: stop what runs, say how it ended, clean up, let it be deleted.
    pub(super) async fn end(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<Next, node_cri::CriError> {
        self.forget_saved().await;
        // First of all: an agent that is killed from here on must not start the pod's containers again.
        // Readiness probes go on, so that the pod leaves its Services when it stops answering; liveness and
        // startup probes would only kill what is ending.
        self.probes.stop_liveness_and_startup();
        let still =
            observed.running().next().is_some() || observed.sandboxes.iter().any(|sandbox| sandbox.ready);
        let mut observed = observed.clone();
        if still {
            self.report(pod, &observed, false).await;
            // Reported before the stop: endpoints need the pod's deletion and readiness early, and the grace
            // period may be long.
            self.stop_listening(pod, &observed).await?;
            observed = self.observe().await?;
        }
        if observed.running().next().is_some() {
            return Ok(self.after(RETRY_WRITE_AFTER));
        }
        self.probes.stop();
        termination::release_host_ports(&self.context.control, &self.uid, &observed).await;
        if !self.give_back(pod).await {
            return Ok(self.after(RETRY_AFTER));
        }
        // A static pod ends without an API server, too.
        if !self.report(pod, &observed, true).await && !is_static(pod) {
            return Ok(self.after(RETRY_WRITE_AFTER));
        }
        self.ended = true;
        if !self.clean_up(pod).await {
            return Ok(self.after(RETRY_AFTER));
        }
        if self.pod().metadata.deletion_timestamp.is_none() {
            self.last_seen = Some(observed);
            return Ok(Next::Wait(None));
        }
        self.remove_everything(&observed).await?;
        // Kept until the object is to be deleted: `kubectl logs` reads the logs of a pod that has ended.
        Ok(self.delete_object(pod).await)
    }

    /// Releases what the pod holds of the node, after all of its containers have ended and before its status says so: the
    /// scheduler may have another for its place and its claims at once. A driver of claims holds up nothing but those.
    /// Reports whether all is given back.
    async fn give_back(&self, pod: &Pod) -> bool {
        self.context.allocations.release(&self.uid);
        self.context.devices.release(&self.uid);
        self.context.resource_managers.release(&self.uid);
        let unprepared = self.context.dra.unprepare(&self.uid).await;
        if let Err(error) = &unprepared {
            tracing::warn!(pod = %full_name(pod), error, "ResourceClaims not unprepared");
        }
        unprepared.is_ok()
    }

    /// Stops everything, in less time if meanwhile less is given, and says so when it is ready no longer. Hooks that
    /// the longer time was for are not waited for and do not run again.
    async fn stop_listening(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<(), node_cri::CriError> {
        let mut observed = observed.clone();
        let (mut grace, mut hook) = (self.grace(pod), Hook::Run);
        loop {
            match self.stop_within(pod, &observed, grace, hook).await {
                Stopped::Outcome(outcome) => return outcome,
                Stopped::Shortened(shorter) => (grace, hook) = (shorter, Hook::Skip),
            }
            observed = self.observe().await?;
        }
    }

    async fn stop_within(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        grace: i64,
        hook: Hook,
    ) -> Stopped {
        let context = Arc::clone(&self.context);
        let stopping = termination::stop_all(&context.control, pod, observed, grace, hook);
        tokio::pin!(stopping);
        loop {
            tokio::select! {
                biased;
                outcome = &mut stopping => return Stopped::Outcome(outcome),
                () = self.inbox.wake.notified() => {
                    let shorter = if self.is_gone() { 1 } else { self.grace(&self.pod()) };
                    if shorter < grace {
                        return Stopped::Shortened(shorter);
                    }
                    // The API may not answer, and what runs is stopped all the same.
                    tokio::select! {
                        biased;
                        outcome = &mut stopping => return Stopped::Outcome(outcome),
                        _ = self.report(pod, observed, false) => {}
                    }
                }
            }
        }
    }

    /// Takes down volumes and groups; false if something is in the way.
    async fn clean_up(&mut self, pod: &Pod) -> bool {
        if self.cleaned {
            return true;
        }
        if !self.remove_image_views(pod).await {
            return false;
        }
        if let Err(error) = self.volumes.tear_down().await {
            tracing::warn!(pod = %full_name(pod), error = %error, "volumes not taken down");
            return false;
        }
        let control = &self.context.control;
        let groups = control.config.groups().possible(&self.uid);
        let cgroups = control.cgroups.clone();
        let work = move || groups.iter().try_for_each(|group| cgroups.remove(group));
        let removed = self.lane.run("removing the pod's group", work).await;
        let failure = match removed {
            Ok(Ok(())) => {
                self.cleaned = true;
                self.inbox.taken_down.replace(true);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(pod = %full_name(pod), error = failure, "pod group not removed");
        false
    }

    /// Removes views of images, before the folder by which they are known to be there.
    async fn remove_image_views(&self, pod: &Pod) -> bool {
        let volumes = self.volumes.clone();
        let look = move || volumes.had_images();
        match self.lane.run("looking for volumes of images", look).await {
            Ok(false) => return true,
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(pod = %full_name(pod), error = %error, "volumes not taken down");
                return false;
            }
        }
        let removed = remove_views(&self.context.control.cri, &self.uid).await;
        if let Err(error) = &removed {
            tracing::warn!(pod = %full_name(pod), error = %error, "views of images not removed");
        }
        removed.is_ok()
    }

    async fn remove_everything(&self, observed: &ObservedPod) -> Result<(), node_cri::CriError> {
        // The runtime removes those of a sandbox with it.
        for container in observed.without_sandbox() {
            let container_id = container.id.clone();
            let request = node_cri::v1::RemoveContainerRequest { container_id };
            self.context.control.cri.remove_container(request).await?;
        }
        for sandbox in &observed.sandboxes {
            self.context.control.remove_sandbox(&sandbox.id).await?;
        }
        let (config, uid) = (self.context.control.config.clone(), self.uid.clone());
        let work = move || {
            for folder in files::log_folders_of(&config, &uid) {
                // What is left is found by the next pass over the disk.
                let _ = node_sys::fs::remove_tree(&folder);
            }
        };
        let _ = self.lane.run("removing the pod's logs", work).await;
        Ok(())
    }

    async fn delete_object(&self, pod: &Pod) -> Next {
        if is_static(pod) {
            // Its mirror is deleted beside it.
            return Next::Done;
        }
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace(pod));
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            // A new pod of the same name (of a StatefulSet) must not be deleted for the old one.
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

    /// Removes everything of a pod whose object was deleted by others; no status is written.
    pub(super) async fn clean_up_deleted(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
    ) -> Result<Next, node_cri::CriError> {
        self.forget_saved().await;
        self.probes.stop();
        // As upstream: the object is gone, so no one waits for a graceful end.
        let grace = grace_period(pod).min(1);
        termination::stop_all(&self.context.control, pod, observed, grace, Hook::Run).await?;
        let observed = self.observe().await?;
        if observed.running().next().is_some() {
            return Ok(self.after(RETRY_WRITE_AFTER));
        }
        // A volume that does not come off holds nothing of this.
        if !self.give_back(pod).await {
            return Ok(self.after(RETRY_AFTER));
        }
        if !self.clean_up(pod).await {
            return Ok(self.after(RETRY_AFTER));
        }
        self.remove_everything(&observed).await?;
        Ok(Next::Done)
    }
}
