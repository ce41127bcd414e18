//! Carries decisions out: binding, the pod's condition, preemption.

use crate::events::{PendingEvent, Recorder};
use crate::pod::PodInfo;
use crate::scheduler::{Preemption, SCHEDULER_NAME};
use crate::volumes::views::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::volumes::{Binding, Reservation};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch};
use machinery_meta::{ObjectKey, Revision, Uid};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Between two tries of a binding of which nobody knows what became.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// So often a binding is tried where the answer stays away.
const TRIES: u32 = 5;

/// The server has no place for the request now.
const TOO_MANY_REQUESTS: i32 = 429;

/// What carrying out needs; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Actions {
    client: Client,
    runtime: Runtime,
    recorder: Recorder,
    pods: ApiResource,
}

impl Actions {
    pub(crate) fn new(client: Client, runtime: Runtime) -> Self {
        let recorder = Recorder::start(&client, &runtime);
        Self {
            client,
            runtime,
            recorder,
            pods: ApiResource::of::<Pod>(),
        }
    }

    /// Binds the pod and tells it so. Where the answer is lost the binding may not be: it is looked at and tried again
    /// on the same node, for the room that the pod was given must not go to another meanwhile.
    pub(crate) async fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Result<(), ClientError> {
        let mut bound = self.try_bind(pod, node).await;
        let mut tries = 1;
        while bound.as_ref().is_err_and(ClientError::leaves_open) && tries < TRIES {
            self.runtime.sleep(TRY_AGAIN).await;
            if self.is_bound(pod).await {
                break;
            }
            bound = self.try_bind(pod, node).await;
            tries += 1;
        }
        let lost_once = tries > 1 || bound.as_ref().is_err_and(ClientError::leaves_open);
        if bound.is_err() && !(lost_once && self.is_bound(pod).await) {
            return bound;
        }
        let note = format!(
            "Successfully assigned {}/{} to {node}",
            pod.key.namespace, pod.key.name
        );
        self.record(pod, None, "Scheduled", "Binding", note);
        Ok(())
    }

    async fn try_bind(&self, pod: &PodInfo, node: &str) -> Result<(), ClientError> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid()},
            "target": {"kind": "Node", "name": node}
        });
        let made = self
            .client
            .create_subresource(&self.pods, &pod.key, "binding", &binding);
        made.await.map(drop)
    }

    /// Whether the pod is on a node, asked of the server until it answers. What cannot be read is taken for unbound.
    async fn is_bound(&self, pod: &PodInfo) -> bool {
        loop {
            match self.client.get_as::<Pod>(&self.pods, &pod.key).await {
                Ok(now) => {
                    let same = now.metadata.uid.as_deref() == Some(pod.uid());
                    let node = now.spec.and_then(|spec| spec.node_name);
                    return same && node.is_some_and(|node| !node.is_empty());
                }
                Err(error) if !error.leaves_open() && error.code() != TOO_MANY_REQUESTS => return false,
                Err(ClientError::Decode { .. }) => return false,
                Err(error) => {
                    tracing::debug!(pod = %pod.key, error = %error.chain(), "binding outcome unknown");
                    self.runtime.sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    /// Writes what is reserved, each where the object is still the one that was looked at: another write of it would make
    /// the choice a wrong one.
    pub(crate) async fn reserve(&self, node: &str, reservation: &mut Reservation) -> Result<(), ClientError> {
        let volumes = ApiResource::of::<PersistentVolume>();
        for own in reservation.bindings.iter_mut().filter(|own| !own.written) {
            let key = ObjectKey::cluster(&*own.volume);
            own.revision = self.write(&volumes, &key, &binding(own)).await?;
            own.written = true;
        }
        let claims = ApiResource::of::<PersistentVolumeClaim>();
        for own in reservation.provisions.iter_mut().filter(|own| !own.written) {
            let body = json!({"metadata": {"resourceVersion": own.revision.to_string(), "annotations": {SELECTED_NODE: node}}});
            own.revision = self.write(&claims, &own.claim, &body).await?;
            own.written = true;
        }
        Ok(())
    }

    async fn write(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        body: &Value,
    ) -> Result<Revision, ClientError> {
        let written = self.client.patch(kind, key, "", &Patch::Merge, body).await?;
        let (_, revision) = parse_header(&written).map_err(|source| ClientError::Decode {
            what: key.to_string(),
            source,
        })?;
        Ok(revision)
    }

    /// Says that the pod fits nowhere, and makes room for it where that was decided.
    pub(crate) async fn reject(&self, pod: &Arc<PodInfo>, message: &str, preemption: Option<Preemption>) {
        self.warn(pod, message.to_owned());
        let nominated = preemption.as_ref().map(|preemption| &*preemption.node);
        self.set_unschedulable(pod, "Unschedulable", message, nominated)
            .await;
        let Some(preemption) = preemption else { return };
        for other in &preemption.dispossessed {
            let body = json!({"status": {"nominatedNodeName": null}});
            self.patch_status(other, &body).await;
        }
        // One that is being deleted makes room without another word.
        for victim in preemption
            .victims
            .iter()
            .filter(|victim| !victim.pod.is_deleting())
        {
            self.preempt(pod, victim, &preemption.node).await;
        }
    }

    /// Says that something went wrong, which is not the pod's fault.
    pub(crate) async fn failed(&self, pod: &Arc<PodInfo>, message: &str) {
        self.warn(pod, message.to_owned());
        self.set_unschedulable(pod, "SchedulerError", message, None).await;
    }

    async fn preempt(&self, pod: &Arc<PodInfo>, victim: &Arc<PodInfo>, node: &str) {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod"),
            "lastTransitionTime": self.now()
        });
        self.patch_status(victim, &json!({"status": {"conditions": [condition]}}))
            .await;
        let options = DeleteOptions::uid(&Uid(victim.uid().to_owned()));
        match self.client.delete(&self.pods, &victim.key, &options).await {
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => {
                tracing::warn!(victim = %victim.key, error = %error.chain(), "deleting a preemption victim failed");
            }
            Ok(_) => {
                let note = format!("Preempted by pod {} on node {node}", pod.uid());
                self.record(victim, Some(pod), "Preempted", "Preempting", note);
            }
        }
    }

    /// Writes the condition only where it says something new.
    async fn set_unschedulable(
        &self,
        pod: &Arc<PodInfo>,
        reason: &str,
        message: &str,
        nominated: Option<&str>,
    ) {
        let own = pod
            .pod
            .status
            .conditions
            .iter()
            .find(|one| &*one.type_ == "PodScheduled");
        let same = own
            .is_some_and(|own| &*own.status == "False" && *own.reason == *reason && *own.message == *message);
        if same && nominated.is_none_or(|node| node == &*pod.pod.status.nominated_node_name) {
            return;
        }
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "observedGeneration": pod.pod.metadata.generation
        });
        if own.is_none_or(|own| &*own.status != "False") {
            condition["lastTransitionTime"] = self.now();
        }
        let mut body = json!({"status": {"conditions": [condition]}});
        if let Some(node) = nominated {
            body["status"]["nominatedNodeName"] = node.into();
        }
        self.patch_status(pod, &body).await;
    }

    async fn patch_status(&self, pod: &PodInfo, body: &Value) {
        let patched = self
            .client
            .patch(&self.pods, &pod.key, "status", &Patch::Strategic, body)
            .await;
        if let Err(error) = patched.map_err(|error| error.chain()) {
            tracing::debug!(pod = %pod.key, %error, "a pod's status was not written");
        }
    }

    fn now(&self) -> Value {
        format!("{:.0}", self.runtime.now()).into()
    }

    fn record(
        &self,
        pod: &Arc<PodInfo>,
        related: Option<&Arc<PodInfo>>,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let (pod, related) = (Arc::clone(pod), related.cloned());
        self.recorder.record(PendingEvent {
            pod,
            related,
            warning: false,
            reason,
            action,
            note,
        });
    }

    fn warn(&self, pod: &Arc<PodInfo>, note: String) {
        let (reason, action) = ("FailedScheduling", "Scheduling");
        self.recorder.record(PendingEvent {
            pod: Arc::clone(pod),
            related: None,
            warning: true,
            reason,
            action,
            note,
        });
    }
}

/// The part of a volume that makes it name its claim.
fn binding(own: &Binding) -> Value {
    let mut body = json!({
        "metadata": {"resourceVersion": own.revision.to_string()},
        "spec": {"claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": own.claim.namespace,
            "name": own.claim.name, "uid": own.claim_uid, "resourceVersion": own.claim_revision.to_string()
        }}
    });
    if own.marks {
        body["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    }
    body
}
