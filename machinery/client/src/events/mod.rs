//! Records what happened for users, as `Event` objects: the same event again raises a count, and no object can flood.
//!
//! The one recorder of all components over HTTP. Recording never waits and never fails its caller: events go out through
//! bounded [`lane`]s by tasks that live only while there are some; what does not fit is [`dropped`] and counted. The form of an
//! event, and which ones are the same, is the [`EventForm`] of upstream's component ([`body`]); bursts about one
//! object are bounded by [`bursts`].
//!
//! The server itself records by `apiserver-registry`'s recorder, since it needs no client of itself.

mod body;
mod bursts;
mod dropped;
mod lane;
#[cfg(test)]
mod tests;

use crate::client::Client;
use crate::resource::ApiResource;
use dropped::DroppedEvents;
use lane::Lane;
use machinery_meta::ObjectKey;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The longest message, as validation of `events.k8s.io/v1` has it.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// The object an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectReference {
    /// `v1` or `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid; empty where the component does not know it.
    pub uid: String,
    /// The version of it that the component saw; mostly empty.
    pub resource_version: String,
    /// A part of it, such as `spec.containers{web}`; mostly empty.
    pub field_path: String,
}

impl ObjectReference {
    /// Refers to an object of a resource.
    pub fn new(resource: &ApiResource, key: &ObjectKey, uid: &str) -> Self {
        Self {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            key: key.clone(),
            uid: uid.to_owned(),
            ..Self::default()
        }
    }

    /// Events of cluster-scoped objects live in `default`.
    fn namespace(&self) -> &str {
        if self.key.namespace.is_empty() {
            "default"
        } else {
            &self.key.namespace
        }
    }
}

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Regular operation.
    Normal,
    /// Something that a user may have to act on.
    Warning,
}

/// The API by which a component writes its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventForm {
    /// `v1`, as client-go's `record.EventRecorder` writes: repetitions raise a count, bursts about one object are bounded.
    Core,
    /// `events.k8s.io/v1`, as client-go's `events.EventRecorder` writes: repetitions become a series.
    Series,
}

/// An event to record.
#[derive(Debug, Clone)]
pub struct NewEvent {
    about: ObjectReference,
    related: Option<ObjectReference>,
    kind: EventType,
    reason: Cow<'static, str>,
    action: &'static str,
    message: String,
    annotations: BTreeMap<String, String>,
    /// The component that reports it, where it is not the recorder's.
    reporter: Option<String>,
}

impl NewEvent {
    /// An event of this type.
    pub fn new(
        kind: EventType,
        about: ObjectReference,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            about,
            related: None,
            kind,
            reason: reason.into(),
            action: "",
            message: message.into(),
            annotations: BTreeMap::new(),
            reporter: None,
        }
    }

    /// Adds what the component was doing, which `events.k8s.io/v1` demands.
    #[must_use]
    pub fn action(mut self, action: &'static str) -> Self {
        self.action = action;
        self
    }

    /// Adds a second object, such as the pod in whose favour another was preempted.
    #[must_use]
    pub fn related(mut self, related: Option<ObjectReference>) -> Self {
        self.related = related;
        self
    }

    /// Adds annotations for programs.
    #[must_use]
    pub fn annotations(mut self, annotations: BTreeMap<String, String>) -> Self {
        self.annotations = annotations;
        self
    }

    /// Reported by another than the recorder's component.
    #[must_use]
    pub fn reported_by(mut self, reporter: &str) -> Self {
        self.reporter = Some(reporter.to_owned());
        self
    }
}

/// A component that records events.
#[derive(Debug, Clone)]
pub struct Reporter {
    form: EventForm,
    component: String,
    /// The node of the component, or its name among others of its kind; mostly empty.
    instance: String,
    lanes: usize,
    max_message_bytes: usize,
    bounds_bursts: bool,
}

impl Reporter {
    /// A component, such as `replicaset-controller`.
    pub fn new(form: EventForm, component: &str) -> Self {
        Self {
            form,
            component: component.to_owned(),
            instance: String::new(),
            lanes: 1,
            max_message_bytes: MAX_MESSAGE_BYTES,
            bounds_bursts: form == EventForm::Core,
        }
    }

    /// Names the node, or the instance among several.
    #[must_use]
    pub fn instance(mut self, instance: &str) -> Self {
        instance.clone_into(&mut self.instance);
        self
    }

    /// Writes so many events at the same time; those of one object stay in order.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes.max(1);
        self
    }

    /// Removes the bound of events about one object.
    #[must_use]
    pub fn unbounded_bursts(mut self) -> Self {
        self.bounds_bursts = false;
        self
    }

    /// Cuts messages at so many bytes.
    #[must_use]
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes;
        self
    }
}

/// Records the events of one component. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    reporter: Arc<Reporter>,
    lanes: Arc<[Arc<Lane>]>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("component", &self.reporter.component)
            .finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Records as this component, by `v1`.
    pub fn new(client: Client, component: &str) -> Self {
        Self::of(client, Reporter::new(EventForm::Core, component))
    }

    /// Records as this reporter.
    pub fn of(client: Client, reporter: Reporter) -> Self {
        let reporter = Arc::new(reporter);
        let dropped = Arc::new(DroppedEvents::new(client.runtime(), &reporter.component));
        let lane = |_| Lane::new(client.clone(), Arc::clone(&reporter), Arc::clone(&dropped));
        Self {
            lanes: (0..reporter.lanes).map(lane).collect(),
            reporter,
        }
    }

    /// Records that something good happened.
    pub fn normal(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        let reason = reason.to_owned();
        self.record(NewEvent::new(EventType::Normal, about.clone(), reason, message));
    }

    /// Records that something bad happened.
    pub fn warning(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        let reason = reason.to_owned();
        self.record(NewEvent::new(EventType::Warning, about.clone(), reason, message));
    }

    /// Records an event.
    pub fn record(&self, mut event: NewEvent) {
        if event.message.len() > self.reporter.max_message_bytes {
            let end = event.message.floor_char_boundary(self.reporter.max_message_bytes);
            event.message.truncate(end);
            event.message.shrink_to_fit();
        }
        let of = event.about.uid.bytes();
        let sum = of.fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        self.lanes[sum % self.lanes.len()].put(event);
    }
}
