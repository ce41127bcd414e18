//! Carries decisions out: binding, the pod's condition, preemption.

use crate::decision::{Nomination, Preemption};
use crate::devices::binding;
use crate::devices::writes::ClaimWriter;
use crate::devices::{Deallocation, HeldClaim};
use crate::events;
use crate::extender::{Answer, Consultants, Question};
use crate::meter::{ERROR, ExtensionPoint, SUCCESS};
use crate::metrics::Metrics;
use crate::pod::PodInfo;
use crate::volumes::scheduling::PRE_BIND;
use crate::volumes::views::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::volumes::{Binding, Reservation};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, EventRecorder, EventType, Patch};
use machinery_meta::{ObjectKey, Revision, Uid};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two tries of a request whose outcome is unknown.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Tries of a binding or a pod's status where the answer stays away.
const TRIES: u32 = 5;

/// The name of no node.
const NOWHERE: &str = "";

/// The server has no place for the request now.
const TOO_MANY_REQUESTS: i32 = 429;

/// Clients and recorders with which decisions are carried out; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Actions {
    client: Client,
    runtime: Runtime,
    recorder: EventRecorder,
    metrics: Metrics,
    pods: ApiResource,
    extenders: Consultants,
}

/// A pod was not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("running Bind plugin \"DefaultBinder\": {}", .0.chain())]
    Api(ClientError),
    #[error("{0}")]
    Extender(String),
}

impl BindError {
    pub(crate) fn pod_is_gone(&self) -> bool {
        match self {
            Self::Api(error) => is_gone(error),
            Self::Extender(_) => false,
        }
    }
}

impl Actions {
    pub(crate) fn new(client: Client, runtime: Runtime, metrics: Metrics, extenders: Consultants) -> Self {
        let recorder = events::recorder(&client);
        Self {
            client,
            runtime,
            recorder,
            metrics,
            pods: ApiResource::of::<Pod>(),
            extenders,
        }
    }

    /// Asks extenders.
    pub(crate) async fn ask(&self, question: Question) -> Answer {
        self.extenders.ask(question).await
    }

    /// Binds the pod and records the event. Where the answer is lost the binding may not be: it is looked at and tried again
    /// on the same node, for the room that the pod was given must not go to another meanwhile.
    pub(crate) async fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Result<(), BindError> {
        let begun = self.runtime.monotonic();
        let bound = match self.extenders.bind(pod, node).await {
            Some(bound) => bound.map_err(BindError::Extender),
            None => self.bind_unmeasured(pod, node).await.map_err(BindError::Api),
        };
        if bound.is_ok() {
            self.record_scheduled(pod, node);
        }
        let took = self.runtime.monotonic().saturating_sub(begun);
        let status = if bound.is_ok() { SUCCESS } else { ERROR };
        let profile = &pod.pod.spec.scheduler_name;
        self.metrics
            .point_ran(profile, ExtensionPoint::Bind, status, took);
        bound
    }

    async fn bind_unmeasured(&self, pod: &Arc<PodInfo>, node: &str) -> Result<(), ClientError> {
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
        Ok(())
    }

    fn record_scheduled(&self, pod: &Arc<PodInfo>, node: &str) {
        let note = format!(
            "Successfully assigned {}/{} to {node}",
            pod.key.namespace, pod.key.name
        );
        self.record(pod, None, "Scheduled", "Binding", &note);
    }

    async fn try_bind(&self, pod: &PodInfo, node: &str) -> Result<(), ClientError> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid()},
            "target": {"kind": "Node", "name": node}
        });
        let made = self
            .client
            .writes()
            .create_subresource(&self.pods, &pod.key, "binding", &binding);
        made.await.map(drop)
    }

    /// Reports whether the pod is on a node, by reads that are repeated until the server answers. A pod that cannot be
    /// read counts as unbound.
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

    /// Says which node the pod is about to be bound to, and writes what is reserved: volumes, then devices, as the plugins
    /// are in order.
    pub(crate) async fn reserve(
        &self,
        pod: &PodInfo,
        node: &str,
        reservation: &mut Reservation,
    ) -> Result<(), String> {
        let volumes = self.reserve_volumes(pod, node, reservation).await;
        volumes.map_err(|error| format!("{PRE_BIND}: {}", error.chain()))?;
        let claims = ClaimWriter::new(&self.client, &self.runtime);
        for own in &mut reservation.devices {
            let mut written = claims.reserve(pod, own).await;
            reservation.held.extend(own.held());
            if let Some(special) = own.special.as_ref().filter(|_| written.is_ok()) {
                let name = &own.key().name;
                let status = json!({"requestMappings": special.mappings, "resourceClaimName": name});
                let body = json!({"status": {"extendedResourceClaimStatus": status}});
                let said = self.patch_status(pod, body).await;
                written = said.map_err(|error| {
                    let error = error.chain();
                    format!("update pod {} ExtendedResourceClaimStatus: {error}", pod.key)
                });
            }
            written.map_err(|why| format!("{}: {why}", binding::PRE_BIND))?;
        }
        if !reservation.conditions.is_empty() {
            let note = format!("waiting for binding conditions for device on node {node}");
            self.record(pod, None, "BindingConditionsPending", "Scheduling", &note);
        }
        Ok(())
    }

    /// Takes back the pod's reservations of devices: it is not bound.
    pub(crate) async fn unreserve(&self, pod: &PodInfo, held: &[HeldClaim]) {
        let claims = ClaimWriter::new(&self.client, &self.runtime);
        for own in held {
            claims.unreserve(pod, own).await;
        }
    }

    /// Takes the devices of a claim back, which are out of the pod's reach. Returns whether that was written.
    pub(crate) async fn deallocate(&self, pod: &PodInfo, own: &Deallocation) -> bool {
        let claims = ClaimWriter::new(&self.client, &self.runtime);
        let written = claims.deallocate(own).await;
        if let Err(error) = &written {
            let error = error.chain();
            tracing::warn!(pod = %pod.key, claim = %own.claim, %error, "a claim's devices were not taken back");
        }
        written.is_ok()
    }

    /// Says which node the pod is about to be bound to, and writes what is reserved of volumes, each where the object is still the one
    /// that was looked at: another write of it would make the choice a wrong one.
    async fn reserve_volumes(
        &self,
        pod: &PodInfo,
        node: &str,
        reservation: &mut Reservation,
    ) -> Result<(), ClientError> {
        if *pod.pod.status.nominated_node_name != *node {
            let body = json!({"status": {"nominatedNodeName": node}});
            let _ = self.patch_status(pod, body).await;
        }
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

    /// Says that the pod fits nowhere, and makes room for it where that was decided. Returns the victims that do not go: all, for a
    /// pod that is gone, and where it is open whether the API knows of the nomination, without which a scheduler that starts would not
    /// know whom they go for.
    pub(crate) async fn reject(
        &self,
        pod: &Arc<PodInfo>,
        message: &str,
        preemption: Option<Preemption>,
        nomination: Nomination,
    ) -> Vec<Arc<PodInfo>> {
        self.warn(pod, message);
        let nominated = match (&preemption, nomination) {
            (Some(preemption), _) => Some(&*preemption.node),
            (None, Nomination::Cleared) => Some(NOWHERE),
            (None, Nomination::Kept) => None,
        };
        let said = self
            .set_unschedulable(pod, "Unschedulable", message, nominated)
            .await;
        let Some(preemption) = preemption else {
            return Vec::new();
        };
        if said.is_err_and(|error| is_gone(&error) || is_open(&error)) {
            return preemption.victims;
        }
        let begun = self.runtime.monotonic();
        let staying = self.make_room(pod, &preemption).await;
        let took = self.runtime.monotonic().saturating_sub(begun);
        self.metrics.preempted(staying.is_empty(), took);
        staying
    }

    /// Deletes the victims. Returns those that do not go.
    async fn make_room(&self, pod: &Arc<PodInfo>, preemption: &Preemption) -> Vec<Arc<PodInfo>> {
        for other in &preemption.dispossessed {
            let body = json!({"status": {"nominatedNodeName": null}});
            let _ = self.patch_status(other, body).await;
        }
        // One that is being deleted makes room without another word.
        let victims = preemption.victims.iter();
        let mut staying = Vec::new();
        for victim in victims.filter(|victim| !victim.pod.is_deleting()) {
            if !self.preempt(pod, victim, &preemption.node).await {
                staying.push(Arc::clone(victim));
            }
        }
        staying
    }

    /// Reports a failure that is not the pod's fault. No node is nominated for it any more.
    pub(crate) async fn failed(&self, pod: &Arc<PodInfo>, message: &str) {
        self.warn(pod, message);
        let _ = self
            .set_unschedulable(pod, "SchedulerError", message, Some(NOWHERE))
            .await;
    }

    /// Deletes a victim once its condition says why, so that its owner does not take it for a failure. Returns whether it goes.
    async fn preempt(&self, pod: &Arc<PodInfo>, victim: &Arc<PodInfo>, node: &str) -> bool {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": format!("{}: preempting to accommodate a higher priority pod", pod.pod.spec.scheduler_name),
            "lastTransitionTime": self.now()
        });
        let said = self.patch_status(victim, json!({"status": {"conditions": [condition]}}));
        match said.await {
            Err(error) if is_gone(&error) => return true,
            Err(_) => return false,
            Ok(()) => {}
        }
        let options = DeleteOptions::uid(&Uid(victim.uid().to_owned()));
        match self.client.delete(&self.pods, &victim.key, &options).await {
            Err(error) if is_gone(&error) => true,
            Err(error) => {
                tracing::warn!(victim = %victim.key, error = %error.chain(), "deleting a preemption victim failed");
                false
            }
            Ok(_) => {
                let note = format!("Preempted by pod {} on node {node}", pod.uid());
                self.record(victim, Some(pod), "Preempted", "Preempting", &note);
                true
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
    ) -> Result<(), ClientError> {
        let own = pod
            .pod
            .status
            .conditions
            .iter()
            .find(|one| &*one.type_ == "PodScheduled");
        let same = own
            .is_some_and(|own| &*own.status == "False" && *own.reason == *reason && *own.message == *message);
        let known = &*pod.pod.status.nominated_node_name;
        // The node of a pod whose claims were being bound may have been written since (`reserve`).
        let may_differ = !pod.claims.is_empty() || pod.may_use_devices();
        let nominated = nominated.filter(|node| *node != known || may_differ);
        if same && nominated.is_none() {
            return Ok(());
        }
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "observedGeneration": pod.pod.metadata.generation
        });
        if own.is_none_or(|own| &*own.status != "False") {
            condition["lastTransitionTime"] = self.now();
        }
        let mut body = json!({"status": {"conditions": [condition]}});
        match nominated {
            None => {}
            Some(NOWHERE) => body["status"]["nominatedNodeName"] = Value::Null,
            Some(node) => body["status"]["nominatedNodeName"] = node.into(),
        }
        self.patch_status(pod, body).await
    }

    /// Patches the status of a pod that is still the one that was looked at. A patch whose outcome is unknown, and one that
    /// met another write, is sent again: it makes no difference how often.
    async fn patch_status(&self, pod: &PodInfo, mut body: Value) -> Result<(), ClientError> {
        body["metadata"] = json!({"uid": pod.uid()});
        let send = || {
            self.client
                .patch(&self.pods, &pod.key, "status", &Patch::Strategic, &body)
        };
        let mut patched = send().await;
        let mut tries = 1;
        let again = |error: &ClientError| error.leaves_open() || error.is_conflict();
        while patched.as_ref().is_err_and(again) && tries < TRIES {
            self.runtime.sleep(TRY_AGAIN).await;
            patched = send().await;
            tries += 1;
        }
        if let Err(error) = &patched {
            tracing::debug!(pod = %pod.key, error = %error.chain(), "a pod's status was not written");
        }
        patched.map(drop)
    }

    fn now(&self) -> Value {
        format!("{:.0}", self.runtime.now()).into()
    }

    fn record(
        &self,
        pod: &PodInfo,
        related: Option<&PodInfo>,
        reason: &'static str,
        action: &'static str,
        note: &str,
    ) {
        let event = events::event(EventType::Normal, pod, related, (reason, action), note);
        self.recorder.record(event);
    }

    fn warn(&self, pod: &PodInfo, note: &str) {
        let reason_and_action = ("FailedScheduling", "Scheduling");
        self.recorder.record(events::event(
            EventType::Warning,
            pod,
            None,
            reason_and_action,
            note,
        ));
    }
}

/// The request may have been carried out, or may be when it is sent again.
fn is_open(error: &ClientError) -> bool {
    error.leaves_open() || error.code() == TOO_MANY_REQUESTS
}

/// The pod is gone, or another has its name.
fn is_gone(error: &ClientError) -> bool {
    error.is_not_found() || error.is_conflict()
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
