//! Events about pods, as `kubectl describe` shows them.

use crate::diagnosis::truncated;
use crate::pod::PodInfo;
use machinery_client::{Client, EventForm, EventRecorder, EventType, NewEvent, ObjectReference, Reporter};

/// Writers at work at the same time.
const WRITERS: usize = 4;

pub(crate) fn recorder(client: &Client) -> EventRecorder {
    let reporter = Reporter::new(EventForm::Series, "default-scheduler").lanes(WRITERS);
    EventRecorder::of(client.clone(), reporter)
}

/// An event of a pod, reported by the scheduler of the pod which is placed, whether that is the victim or not.
pub(crate) fn event(
    kind: EventType,
    pod: &PodInfo,
    related: Option<&PodInfo>,
    (reason, action): (&'static str, &'static str),
    note: &str,
) -> NewEvent {
    let placed = related.unwrap_or(pod);
    NewEvent::new(kind, reference(pod), reason, truncated(note))
        .action(action)
        .related(related.map(reference))
        .reported_by(&placed.pod.spec.scheduler_name)
}

fn reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        key: pod.key.clone(),
        uid: pod.uid().to_owned(),
        resource_version: pod.pod.metadata.resource_version.to_string(),
        field_path: String::new(),
    }
}
