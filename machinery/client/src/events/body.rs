//! Events as JSON, in the two APIs that have them.

use super::bursts::{Identity, identity};
use super::{EventForm, NewEvent, ObjectReference, Reporter};
use crate::resource::ApiResource;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use serde_json::{Map, Value, json};

impl EventForm {
    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Core => ApiResource::of::<CoreEvent>(),
            Self::Series => ApiResource::of::<SeriesEvent>(),
        }
    }

    /// Digest that is equal for repetitions of an event.
    pub(super) fn identity(self, event: &NewEvent) -> Identity {
        let about = event.about.identity();
        let kind = format!("{:?}", event.kind);
        let own: [&str; 4] = match self {
            Self::Core => [&event.message, "", "", ""],
            // As client-go's `getKey`: the message is not part of it, the version of the object is.
            Self::Series => [
                event.action,
                &event.about.resource_version,
                event.reporter.as_deref().unwrap_or_default(),
                event.related.as_ref().map_or("", |related| &related.uid),
            ],
        };
        let texts = [kind.as_str(), &event.reason].into_iter().chain(own);
        identity(std::iter::once(about.as_slice()).chain(texts.map(str::as_bytes)))
    }

    /// The change that one more repetition makes, where it is written at all.
    pub(super) fn repetition(self, count: u32, at: Timestamp) -> Option<Value> {
        match self {
            Self::Core => Some(json!({"count": count, "lastTimestamp": seconds(at)})),
            // Upstream writes a series every six minutes; the count is as good at powers of two.
            Self::Series => count
                .is_power_of_two()
                .then(|| json!({"series": {"count": count, "lastObservedTime": micro(at)}})),
        }
    }

    pub(super) fn body(self, reporter: &Reporter, event: &NewEvent, at: Timestamp, name: &str) -> Value {
        let mut metadata = json!({"name": name, "namespace": event.about.namespace()});
        if !event.annotations.is_empty() {
            metadata["annotations"] = json!(event.annotations);
        }
        match self {
            Self::Core => core(reporter, event, at, metadata),
            Self::Series => series(reporter, event, at, metadata),
        }
    }
}

fn core(reporter: &Reporter, event: &NewEvent, at: Timestamp, metadata: Value) -> Value {
    let at = seconds(at);
    let mut source = json!({"component": reporter.component});
    if !reporter.instance.is_empty() {
        source["host"] = json!(reporter.instance);
    }
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": metadata,
        "involvedObject": reference(&event.about), "reason": event.reason, "message": event.message,
        "type": format!("{:?}", event.kind), "source": source, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        "reportingComponent": reporter.component, "reportingInstance": reporter.instance,
    })
}

fn series(reporter: &Reporter, event: &NewEvent, at: Timestamp, metadata: Value) -> Value {
    let controller = event.reporter.as_ref().unwrap_or(&reporter.component);
    let instance = match reporter.instance.as_str() {
        "" => controller.as_str(),
        own => own,
    };
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata,
        "eventTime": micro(at), "type": format!("{:?}", event.kind), "reason": event.reason, "action": event.action,
        "note": event.message, "regarding": reference(&event.about),
        "reportingController": controller, "reportingInstance": instance,
    });
    if let Some(related) = &event.related {
        body["related"] = reference(related);
    }
    body
}

fn reference(object: &ObjectReference) -> Value {
    let members = [
        ("apiVersion", object.api_version.as_str()),
        ("kind", &object.kind),
        ("namespace", &object.key.namespace),
        ("name", &object.key.name),
        ("uid", &object.uid),
        ("resourceVersion", &object.resource_version),
        ("fieldPath", &object.field_path),
    ];
    let given = members.into_iter().filter(|(_, text)| !text.is_empty());
    let given = given.map(|(name, text)| (name.to_owned(), Value::from(text)));
    Value::Object(given.collect::<Map<String, Value>>())
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A `MicroTime`.
fn micro(at: Timestamp) -> String {
    format!("{at:.6}")
}
