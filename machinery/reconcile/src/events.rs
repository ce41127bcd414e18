//! Records what happened for users, as `Event` objects: the same event again raises a count, and no object can flood.
//!
//! Recording never waits and never fails its caller. Events go out through a bounded queue by a task that lives only
//! while there are some; what does not fit is dropped and counted.

use machinery_client::{ApiResource, Client, Patch};
use machinery_meta::{ObjectKey, syntax};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Events that wait to be sent.
const MAX_QUEUED: usize = 1_000;
/// Different events whose count is remembered; the oldest are forgotten.
const MAX_REMEMBERED: usize = 4_096;
/// Events of one object at once, and how long until there is room for one more, as client-go's spam filter has them.
const OBJECT_BURST: u32 = 25;
const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// Attempts to send an event before it is dropped.
const SEND_ATTEMPTS: u32 = 3;
const SEND_RETRY: Duration = Duration::from_secs(1);
/// The longest message, as validation has it.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectReference {
    /// `v1` or `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
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
            field_path: String::new(),
        }
    }
}

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// It is.
    Normal,
    /// It is not.
    Warning,
}

/// Records the events of one component. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    component: String,
    /// The node the component runs on, where it runs on one.
    host: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    sending: bool,
    dropped: u64,
    remembered: BTreeMap<Same, Sent>,
    /// The order in which events were remembered.
    order: VecDeque<Same>,
    buckets: BTreeMap<ObjectReference, Bucket>,
}

/// Fields that are equal in repetitions of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Same {
    about: ObjectReference,
    kind: EventType,
    reason: String,
    message: String,
}

/// An event that exists already.
#[derive(Debug, Clone)]
struct Sent {
    name: String,
    count: u32,
}

struct Item {
    same: Same,
    at: jiff::Timestamp,
}

struct Bucket {
    tokens: u32,
    refilled: Duration,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("component", &self.inner.component)
            .finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Records as this component, such as `replicaset-controller`.
    pub fn new(client: Client, component: &str) -> Self {
        Self::on_host(client, component, "")
    }

    /// Records as this component on this node.
    pub fn on_host(client: Client, component: &str, host: &str) -> Self {
        let (component, host) = (component.to_owned(), host.to_owned());
        Self {
            inner: Arc::new(Inner {
                client,
                component,
                host,
                state: Mutex::default(),
            }),
        }
    }

    /// Records that something good happened.
    pub fn normal(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(about, EventType::Normal, reason, message.into());
    }

    /// Records that something bad happened.
    pub fn warning(&self, about: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(about, EventType::Warning, reason, message.into());
    }

    fn record(&self, about: &ObjectReference, kind: EventType, reason: &str, mut message: String) {
        let mut end = message.len().min(MAX_MESSAGE_BYTES);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        let runtime = self.inner.client.runtime();
        let same = Same {
            about: about.clone(),
            kind,
            reason: reason.to_owned(),
            message,
        };
        let start = {
            let mut state = self.inner.state.lock();
            let full = state.queue.len() >= MAX_QUEUED || !state.admit(about, runtime.monotonic());
            if full {
                state.dropped += 1;
                return;
            }
            state.queue.push_back(Item {
                same,
                at: runtime.now(),
            });
            !std::mem::replace(&mut state.sending, true)
        };
        if start {
            let inner = self.inner.clone();
            drop(runtime.spawn("event recorder", async move { inner.send_all().await }));
        }
    }
}

impl State {
    /// Takes a token of the object's bucket.
    fn admit(&mut self, about: &ObjectReference, now: Duration) -> bool {
        if self.buckets.len() >= MAX_REMEMBERED {
            self.buckets
                .retain(|_, bucket| bucket.tokens_at(now) < OBJECT_BURST);
        }
        if self.buckets.len() >= MAX_REMEMBERED {
            self.buckets.clear();
        }
        let full = || Bucket {
            tokens: OBJECT_BURST,
            refilled: now,
        };
        let bucket = self.buckets.entry(about.clone()).or_insert_with(full);
        let tokens = bucket.tokens_at(now);
        if tokens == 0 {
            return false;
        }
        if tokens != bucket.tokens {
            bucket.refilled = now;
        }
        bucket.tokens = tokens - 1;
        true
    }

    fn remember(&mut self, same: &Same, sent: Sent) {
        if self.remembered.insert(same.clone(), sent).is_none() {
            self.order.push_back(same.clone());
        }
        while self.order.len() > MAX_REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.remembered.remove(&oldest);
            }
        }
    }
}

impl Bucket {
    fn tokens_at(&self, now: Duration) -> u32 {
        let refills = now.saturating_sub(self.refilled).as_secs() / OBJECT_REFILL.as_secs();
        self.tokens
            .saturating_add(u32::try_from(refills).unwrap_or(OBJECT_BURST))
            .min(OBJECT_BURST)
    }
}

impl Inner {
    async fn send_all(&self) {
        loop {
            let item = {
                let mut state = self.state.lock();
                let item = state.queue.pop_front();
                if item.is_none() {
                    state.sending = false;
                }
                item
            };
            let Some(item) = item else { return };
            self.send(item).await;
        }
    }

    async fn send(&self, item: Item) {
        for _ in 0..SEND_ATTEMPTS {
            match self.send_once(&item).await {
                Ok(()) => return,
                // The namespace is going, or the event is not acceptable: trying again would change nothing.
                Err(error) if (400..500).contains(&error.code()) && error.code() != 429 => {
                    tracing::debug!(error = %error.chain(), reason = %item.same.reason, "an event was refused");
                    return;
                }
                Err(_) => self.client.runtime().sleep(SEND_RETRY).await,
            }
        }
        self.state.lock().dropped += 1;
    }

    async fn send_once(&self, item: &Item) -> Result<(), machinery_client::ClientError> {
        let resource = ApiResource::of::<k8s_openapi::api::core::v1::Event>();
        let namespace = item.same.namespace();
        let known = self.state.lock().remembered.get(&item.same).cloned();
        if let Some(known) = known {
            let count = known.count + 1;
            let body = json!({"count": count, "lastTimestamp": seconds(item.at)});
            let key = ObjectKey::new(namespace, &known.name);
            match self.client.patch(&resource, &key, "", &Patch::Merge, &body).await {
                Ok(_) => {
                    self.state.lock().remember(&item.same, Sent { count, ..known });
                    return Ok(());
                }
                // It expired; make a new one.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let mut name = format!("{}.{:x}", item.same.about.key.name, item.at.as_nanosecond());
        if !syntax::dns1123_subdomain(&name).is_empty() {
            // Roles and the like have names that an event may not have.
            name = self.client.runtime().uuid().to_string();
        }
        self.client
            .create(&resource, namespace, &self.body(item, &name))
            .await?;
        self.state.lock().remember(&item.same, Sent { name, count: 1 });
        Ok(())
    }

    fn body(&self, item: &Item, name: &str) -> serde_json::Value {
        let Same {
            about,
            kind,
            reason,
            message,
        } = &item.same;
        let mut involved = json!({
            "apiVersion": about.api_version, "kind": about.kind, "name": about.key.name, "uid": about.uid,
        });
        if !about.key.namespace.is_empty() {
            involved["namespace"] = json!(about.key.namespace);
        }
        if !about.field_path.is_empty() {
            involved["fieldPath"] = json!(about.field_path);
        }
        let mut source = json!({"component": self.component});
        if !self.host.is_empty() {
            source["host"] = json!(self.host);
        }
        let at = seconds(item.at);
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": item.same.namespace()},
            "involvedObject": involved, "reason": reason, "message": message, "type": format!("{kind:?}"),
            "source": source, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
            "reportingComponent": self.component, "reportingInstance": self.host,
        })
    }
}

impl Same {
    /// Events of cluster-scoped objects live in `default`.
    fn namespace(&self) -> &str {
        if self.about.key.namespace.is_empty() {
            "default"
        } else {
            &self.about.key.namespace
        }
    }
}

fn seconds(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
