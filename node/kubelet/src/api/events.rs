//! Event recorder: requests for events are queued and sent in the background. A repeated request raises the count of its event.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use machinery_runtime::Runtime;
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};

use super::printable;
use crate::pods::ContainerKind;
use crate::pods::plan::container_named;

/// Requests in the queue; beyond it the newest are dropped, for an event is worth less than memory.
const QUEUE_MAX: usize = 512;
/// Notes whose count can still be raised.
const REMEMBERED_MAX: usize = 1024;
/// Of a longer message the beginning is sent: room for a probe's output and upstream's words around it.
const MESSAGE_BYTES_MAX: usize = 12 << 10;
const COMPONENT: &str = "kubelet";

/// `Normal` or `Warning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Regular operation.
    Normal,
    /// Something that a user may have to act on.
    Warning,
}

#[derive(Debug, Clone)]
struct EventRequest {
    namespace: String,
    object: Object,
    kind: &'static str,
    reason: Cow<'static, str>,
    message: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
struct Object {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: Option<String>,
    field_path: Option<String>,
}

impl EventRequest {
    /// Digest that is equal for requests of the same event, whatever the revision of their object.
    fn digest(&self) -> [u8; 32] {
        let object = &self.object;
        let mut digest = Sha256::new();
        let parts: [&str; 9] = [
            &self.namespace,
            object.kind,
            object.namespace.as_deref().unwrap_or_default(),
            &object.name,
            &object.uid,
            object.field_path.as_deref().unwrap_or_default(),
            self.kind,
            &self.reason,
            &self.message,
        ];
        for part in parts {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

/// Object of several events, for callers that do not keep the object itself.
#[derive(Debug, Clone)]
pub(crate) struct EventSubject(Object);

impl EventSubject {
    /// A container of a pod.
    pub(crate) fn container(pod: &Pod, container: &str) -> Self {
        let field = match container_named(pod, container) {
            Some((ContainerKind::Init | ContainerKind::Sidecar, _)) => "initContainers",
            Some((ContainerKind::Ephemeral, _)) => "ephemeralContainers",
            Some((ContainerKind::Regular, _)) | None => "containers",
        };
        Self(pod_object(pod, Some(format!("spec.{field}{{{container}}}"))))
    }
}

/// Queues requests for events. Cheap to clone; never waits.
#[derive(Debug, Clone)]
pub(crate) struct EventRecorder {
    queue: mpsc::Sender<EventRequest>,
}

impl EventRecorder {
    /// Starts the recorder; the task that sends runs in the background.
    pub(crate) fn start(runtime: &Runtime, client: Client, node_name: &str) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let sender = Sender {
            client,
            runtime: runtime.clone(),
            host: node_name.to_string(),
            sent: HashMap::new(),
        };
        // Only the request that makes it panic is lost.
        let state = Arc::new(Mutex::new((sender, requests)));
        let send = move || {
            let state = Arc::clone(&state);
            async move {
                let (sender, requests) = &mut *state.lock().await;
                sender.run(requests).await;
            }
        };
        runtime.keep("event recorder", send).detach();
        Self { queue }
    }

    /// Records an event of a pod.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        kind: EventKind,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.enqueue(pod_object(pod, None), kind, reason.into(), message.into());
    }

    /// Records a warning about a pod, with annotations for programs.
    pub(crate) fn annotated(
        &self,
        pod: &Pod,
        reason: &'static str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let mut request = request(
            pod_object(pod, None),
            EventKind::Warning,
            reason.into(),
            message.into(),
        );
        request.annotations = annotations;
        self.send(request);
    }

    /// Records an event of one container of a pod.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: EventKind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.about(&EventSubject::container(pod, container), kind, reason, message);
    }

    /// Records an event of a prepared subject.
    pub(crate) fn about(
        &self,
        subject: &EventSubject,
        kind: EventKind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.enqueue(subject.0.clone(), kind, reason.into(), message.into());
    }

    /// Records an event of this node.
    pub(crate) fn node(
        &self,
        node: &Node,
        kind: EventKind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let uid = node.metadata.uid.clone().unwrap_or_else(|| name.clone());
        let object = Object {
            kind: "Node",
            namespace: None,
            name,
            uid,
            resource_version: None,
            field_path: None,
        };
        self.enqueue(object, kind, reason.into(), message.into());
    }

    fn enqueue(&self, object: Object, kind: EventKind, reason: Cow<'static, str>, message: String) {
        self.send(request(object, kind, reason, message));
    }

    fn send(&self, request: EventRequest) {
        if let Err(error) = self.queue.try_send(request) {
            tracing::debug!(%error, "event dropped, the queue is full");
        }
    }
}

fn request(object: Object, kind: EventKind, reason: Cow<'static, str>, message: String) -> EventRequest {
    let kind = if kind == EventKind::Normal {
        "Normal"
    } else {
        "Warning"
    };
    EventRequest {
        namespace: object.namespace.clone().unwrap_or_else(|| "default".into()),
        object,
        kind,
        reason,
        message: bounded(printable(&message).into_owned()),
        annotations: BTreeMap::new(),
    }
}

/// Cuts a message: containers and registries choose the text of errors and its length.
fn bounded(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.shrink_to_fit();
    }
    message
}

fn pod_object(pod: &Pod, field_path: Option<String>) -> Object {
    Object {
        kind: "Pod",
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path,
    }
}

struct Sender {
    client: Client,
    runtime: Runtime,
    host: String,
    /// Events sent before, by the digest of their request: name and count.
    sent: HashMap<[u8; 32], (String, i32)>,
}

impl Sender {
    async fn run(&mut self, requests: &mut mpsc::Receiver<EventRequest>) {
        while let Some(request) = requests.recv().await {
            if let Err(error) = self.send(&request).await {
                tracing::debug!(error = %error, reason = %request.reason, "event not recorded");
            }
        }
    }

    async fn send(&mut self, request: &EventRequest) -> Result<(), kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &request.namespace);
        let key = request.digest();
        if let Some((name, count)) = self.sent.get_mut(&key) {
            *count += 1;
            let now = Time(self.runtime.now());
            let patch = serde_json::json!({"count": *count, "lastTimestamp": now});
            let outcome = api
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            match outcome {
                // The event has expired meanwhile: create another.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        let event = self.event(request);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        if self.sent.len() >= REMEMBERED_MAX {
            self.sent.clear();
        }
        self.sent.insert(key, (name, 1));
        Ok(())
    }

    fn event(&self, request: &EventRequest) -> Event {
        let now = self.runtime.now();
        let object = &request.object;
        let name = format!("{}.{:x}", object.name, self.runtime.random_u64());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(request.namespace.clone()),
                annotations: Some(request.annotations.clone()).filter(|all| !all.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some(object.kind.into()),
                name: Some(object.name.clone()),
                namespace: object.namespace.clone(),
                uid: Some(object.uid.clone()),
                resource_version: object.resource_version.clone(),
                field_path: object.field_path.clone(),
            },
            reason: Some(request.reason.clone().into_owned()),
            message: Some(request.message.clone()),
            source: Some(EventSource {
                component: Some(COMPONENT.into()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(COMPONENT.into()),
            reporting_instance: Some(self.host.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            type_: Some(request.kind.into()),
            ..Event::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_messages_are_bounded() {
        assert_eq!(bounded("short".into()), "short");
        let long = bounded("ä".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(long.len(), MESSAGE_BYTES_MAX);
        assert_eq!(
            bounded(format!("x{long}")).len(),
            MESSAGE_BYTES_MAX - 1,
            "cut between letters"
        );
    }

    #[test]
    fn event_of_the_same_note_raises_the_count_whatever_the_revision() {
        let pod = |revision: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some("p".into());
            pod.metadata.resource_version = Some(revision.into());
            pod_object(&pod, None)
        };
        let request = |object: Object, message: &str| EventRequest {
            namespace: "n".into(),
            object,
            kind: "Normal",
            reason: "R".into(),
            message: message.into(),
            annotations: BTreeMap::new(),
        };
        let digest = request(pod("1"), "m").digest();
        assert_eq!(request(pod("2"), "m").digest(), digest);
        assert_ne!(request(pod("1"), "other").digest(), digest);
    }
}
