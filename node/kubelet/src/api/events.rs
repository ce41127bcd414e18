//! Events of this node and its pods, as the machinery's recorder writes them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{Client, EventForm, EventRecorder, NewEvent, ObjectReference, Reporter};
use machinery_meta::ObjectKey;

use super::printable;
use crate::pods::ContainerKind;
use crate::pods::container_named::container_named;

pub(crate) use machinery_client::EventType;

/// Bytes of a message that are sent: room for a probe's output and upstream's words around it.
const MESSAGE_BYTES_MAX: usize = 12 << 10;
const COMPONENT: &str = "kubelet";

/// Object of several events, for callers that do not keep the object itself.
#[derive(Debug, Clone)]
pub(crate) struct EventSubject(ObjectReference);

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

/// Records events of the kubelet. Cheap to clone; never waits.
#[derive(Debug, Clone)]
pub(crate) struct NodeEvents(EventRecorder);

impl NodeEvents {
    /// Records as the kubelet of this node.
    pub(crate) fn new(client: Client, node_name: &str) -> Self {
        let reporter = Reporter::new(EventForm::Core, COMPONENT)
            .instance(node_name)
            .unbounded_bursts()
            .max_message_bytes(MESSAGE_BYTES_MAX);
        Self(EventRecorder::of(client, reporter))
    }

    /// Records an event of a pod.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.record(pod_object(pod, None), kind, reason.into(), message.into());
    }

    /// Records a warning about a pod, with annotations for programs.
    pub(crate) fn annotated(
        &self,
        pod: &Pod,
        reason: &'static str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let event = event(
            pod_object(pod, None),
            EventType::Warning,
            reason.into(),
            message.into(),
        );
        self.0.record(event.annotations(annotations));
    }

    /// Records an event of one container of a pod.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.about(&EventSubject::container(pod, container), kind, reason, message);
    }

    /// Records an event of a prepared subject.
    pub(crate) fn about(
        &self,
        subject: &EventSubject,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(subject.0.clone(), kind, reason.into(), message.into());
    }

    /// Records an event of this node.
    pub(crate) fn node(
        &self,
        node: &Node,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let uid = node.metadata.uid.clone().unwrap_or_else(|| name.clone());
        let object = ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            key: ObjectKey::new("", name),
            uid,
            ..ObjectReference::default()
        };
        self.record(object, kind, reason.into(), message.into());
    }

    fn record(&self, object: ObjectReference, kind: EventType, reason: Cow<'static, str>, message: String) {
        self.0.record(event(object, kind, reason, message));
    }
}

/// Text of a message is chosen by containers and registries.
fn event(object: ObjectReference, kind: EventType, reason: Cow<'static, str>, message: String) -> NewEvent {
    NewEvent::new(kind, object, reason, printable(&message).into_owned())
}

fn pod_object(pod: &Pod, field_path: Option<String>) -> ObjectReference {
    let metadata = &pod.metadata;
    let text = |own: &Option<String>| own.clone().unwrap_or_default();
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        key: ObjectKey::new(text(&metadata.namespace), text(&metadata.name)),
        uid: text(&metadata.uid),
        resource_version: text(&metadata.resource_version),
        field_path: field_path.unwrap_or_default(),
    }
}
