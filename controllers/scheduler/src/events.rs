//! Events about pods, as `kubectl describe` shows them.
//!
//! The same event about the same pod again becomes a series with a count, as upstream's recorder makes it. Events
//! are best effort: when more are waiting than the bound, new ones are dropped.

use crate::diagnosis::truncated;
use crate::pod::PodInfo;
use k8s_openapi::api::events::v1::Event;
use machinery_client::{ApiResource, Client, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events waiting to be written.
const MAX_WAITING: usize = 4096;
/// Series remembered; beyond it they start over.
const MAX_SERIES: usize = 4096;
/// Writers at work at the same time.
const WRITERS: usize = 4;

/// One event to record.
#[derive(Debug)]
pub(crate) struct PendingEvent {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) related: Option<Arc<PodInfo>>,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) note: String,
}

/// Takes events; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    senders: Vec<mpsc::Sender<PendingEvent>>,
}

impl Recorder {
    pub(crate) fn start(client: &Client, runtime: &Runtime) -> Self {
        let start = |_| {
            let (sender, receiver) = mpsc::channel(MAX_WAITING / WRITERS);
            runtime
                .spawn(
                    "scheduler events",
                    write(client.clone(), runtime.clone(), receiver),
                )
                .detach();
            sender
        };
        Self {
            senders: (0..WRITERS).map(start).collect(),
        }
    }

    /// One pod's events go through one writer, so that they stay in order.
    pub(crate) fn record(&self, telling: PendingEvent) {
        let sum = telling
            .pod
            .uid()
            .bytes()
            .fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        if self.senders[sum % self.senders.len()].try_send(telling).is_err() {
            tracing::debug!("event dropped: the queue is full");
        }
    }
}

/// Pod, the version of it that the event is about, reason and action (client-go's `getKey`).
type SeriesKey = (Box<str>, Box<str>, &'static str, &'static str);

async fn write(client: Client, runtime: Runtime, mut receiver: mpsc::Receiver<PendingEvent>) {
    let resource = ApiResource::of::<Event>();
    let mut series: HashMap<SeriesKey, (ObjectKey, u32)> = HashMap::new();
    while let Some(telling) = receiver.recv().await {
        let time = runtime.now();
        let pod = &telling.pod;
        let version = Box::from(&*pod.pod.metadata.resource_version);
        let key = (Box::from(pod.uid()), version, telling.reason, telling.action);
        if let Some((name, count)) = series.get_mut(&key) {
            *count += 1;
            if count.is_power_of_two() {
                let body = json!({"series": {"count": *count, "lastObservedTime": micro(time)}});
                let patched = client.patch(&resource, name, "", &Patch::Merge, &body).await;
                if patched.is_ok() {
                    continue;
                }
            } else {
                continue;
            }
        }
        let name = format!("{}.{:x}", telling.pod.key.name, time.as_nanosecond());
        let event = event(&telling, &name, time);
        match client.create(&resource, &telling.pod.key.namespace, &event).await {
            Ok(_) => {
                if series.len() >= MAX_SERIES {
                    series.clear();
                }
                series.insert(key, (ObjectKey::new(&telling.pod.key.namespace, name), 1));
            }
            Err(error) => {
                tracing::debug!(pod = %telling.pod.key, error = %error.chain(), "an event was not written")
            }
        }
    }
}

fn event(telling: &PendingEvent, name: &str, time: jiff::Timestamp) -> Value {
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": telling.pod.key.namespace},
        "eventTime": micro(time),
        "reportingController": reporter(telling),
        "reportingInstance": reporter(telling),
        "type": if telling.warning { "Warning" } else { "Normal" },
        "reason": telling.reason,
        "action": telling.action,
        "note": truncated(&telling.note),
        "regarding": reference(&telling.pod),
    });
    if let Some(related) = &telling.related {
        event["related"] = reference(related);
    }
    event
}

/// The scheduler that says it: that of the pod which is placed, whether it is the victim or not.
fn reporter(telling: &PendingEvent) -> &str {
    let pod = telling.related.as_ref().unwrap_or(&telling.pod);
    &pod.pod.spec.scheduler_name
}

fn reference(pod: &PodInfo) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace, "name": pod.key.name,
        "uid": pod.uid(), "resourceVersion": pod.pod.metadata.resource_version})
}

/// A `MicroTime`.
fn micro(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}
