//! State of the log, one revision after the other: the only thing invariants look at.

use apiserver_storage::{Entry, Event, Prefix, Revision, Storage, WatchCursor, WatchFilter, WatchRequest};
use machinery_meta::{ObjectHeader, ObjectKey};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// Events taken from the log at a time.
const BATCH: usize = 64;

/// An object as one revision left it.
#[derive(Debug)]
pub(crate) struct ObjectVersion {
    pub(crate) kind: String,
    entry: Arc<Entry>,
    value: OnceLock<Value>,
}

impl Deref for ObjectVersion {
    type Target = ObjectHeader;

    fn deref(&self) -> &ObjectHeader {
        &self.entry.record.header
    }
}

impl ObjectVersion {
    fn new(entry: &Arc<Entry>) -> Self {
        let head: Value = serde_json::from_slice(&[b"{", &entry.record.parts[0][..], b"\"x\":0}"].concat())
            .unwrap_or_else(|_| panic!("{:?} begins with its kind", entry.record.parts[0]));
        Self {
            kind: head["kind"].as_str().unwrap().to_owned(),
            entry: entry.clone(),
            value: OnceLock::new(),
        }
    }

    /// The whole object.
    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let parts = &self.entry.record.parts;
            let revision = format!("\"{}\"", self.entry.revision);
            let json = [
                b"{",
                &parts[0][..],
                &parts[1][..],
                revision.as_bytes(),
                &parts[2][..],
            ]
            .concat();
            serde_json::from_slice(&json).unwrap()
        })
    }

    /// Value at a JSON pointer.
    pub(crate) fn at(&self, pointer: &str) -> Option<&Value> {
        self.value().pointer(pointer)
    }

    /// The text there, empty where there is none.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or("")
    }

    /// The number there, zero where there is none.
    pub(crate) fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or(0)
    }

    /// The list there, empty where there is none.
    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// The status of a condition, empty where there is none.
    pub(crate) fn condition(&self, kind: &str) -> &str {
        let all = self.list("/status/conditions");
        let found = all.iter().find(|own| own["type"] == kind);
        found.and_then(|own| own["status"].as_str()).unwrap_or("")
    }

    pub(crate) fn name(&self) -> &str {
        &self.key.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Reports whether a pod has neither ended nor is ending.
    pub(crate) fn is_active_pod(&self) -> bool {
        !self.is_deleting() && !self.is_ended_pod()
    }

    /// Reports whether a pod has run to its end.
    pub(crate) fn is_ended_pod(&self) -> bool {
        matches!(self.text("/status/phase"), "Succeeded" | "Failed")
    }

    /// Reports whether a pod is active and ready.
    pub(crate) fn is_ready_pod(&self) -> bool {
        self.is_active_pod() && self.condition("Ready") == "True"
    }

    /// Reports whether `owner` controls it.
    pub(crate) fn is_controlled_by(&self, owner: &ObjectVersion) -> bool {
        self.controller().is_some_and(|own| own.uid == owner.uid)
    }
}

/// One revision's change.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) before: Option<Arc<ObjectVersion>>,
    pub(crate) after: Option<Arc<ObjectVersion>>,
}

impl Change {
    /// The object now, or as it last was.
    pub(crate) fn latest(&self) -> &Arc<ObjectVersion> {
        self.after.as_ref().or(self.before.as_ref()).unwrap()
    }

    pub(crate) fn is_of(&self, kind: &str) -> bool {
        self.latest().kind == kind
    }

    /// The object as it is now, or as it last was; tokens are signed anew in every process.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let latest = self.latest();
        let is_secret = latest.kind == "Secret";
        let parts = latest.entry.record.parts.iter().filter(|_| !is_secret);
        let ends = [u8::from(self.after.is_some())];
        let revision = latest.entry.revision.0.to_le_bytes();
        let parts = parts.flat_map(|part| part.iter().copied());
        parts.chain(revision).chain(ends).collect()
    }

    /// The object as it was, where it is gone now.
    pub(crate) fn gone(&self, kind: &str) -> Option<&Arc<ObjectVersion>> {
        self.before
            .as_ref()
            .filter(|before| self.after.is_none() && before.kind == kind)
    }

    /// The object, where it was not there before.
    pub(crate) fn made(&self, kind: &str) -> Option<&Arc<ObjectVersion>> {
        self.after
            .as_ref()
            .filter(|after| self.before.is_none() && after.kind == kind)
    }
}

/// Every object, as of one revision.
#[derive(Debug, Default)]
pub(crate) struct ReferenceModel {
    kinds: BTreeMap<String, BTreeMap<ObjectKey, Arc<ObjectVersion>>>,
    revision: Revision,
}

impl ReferenceModel {
    /// The objects of a kind, in the order of their keys.
    pub(crate) fn all(&self, kind: &str) -> impl Iterator<Item = &Arc<ObjectVersion>> {
        self.kinds.get(kind).into_iter().flat_map(BTreeMap::values)
    }

    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Arc<ObjectVersion>> {
        self.kinds.get(kind)?.get(&ObjectKey::new(namespace, name))
    }

    /// Every object.
    pub(crate) fn everything(&self) -> impl Iterator<Item = &Arc<ObjectVersion>> {
        self.kinds.values().flat_map(BTreeMap::values)
    }

    /// Every object in a namespace.
    pub(crate) fn inside(&self, namespace: &str) -> impl Iterator<Item = &Arc<ObjectVersion>> {
        self.everything().filter(move |own| own.namespace() == namespace)
    }

    /// The object with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Arc<ObjectVersion>> {
        self.everything().find(|own| own.uid.0 == uid)
    }

    /// Pods in a namespace that an owner controls.
    pub(crate) fn pods_of(&self, owner: &ObjectVersion) -> impl Iterator<Item = &Arc<ObjectVersion>> {
        self.all("Pod").filter(move |pod| pod.is_controlled_by(owner))
    }

    fn put(&mut self, event: &Event) -> Change {
        let after = event
            .entry
            .as_ref()
            .map(|entry| Arc::new(ObjectVersion::new(entry)));
        let before = match (&after, &event.previous) {
            (Some(after), _) => {
                let kind = self.kinds.entry(after.kind.clone()).or_default();
                kind.insert(after.key.clone(), after.clone())
            }
            (None, Some(previous)) => {
                let previous = ObjectVersion::new(previous);
                self.kinds
                    .get_mut(&previous.kind)
                    .and_then(|kind| kind.remove(&previous.key))
            }
            (None, None) => None,
        };
        self.revision = event.revision;
        Change { before, after }
    }
}

/// Reads the log from where it last was.
pub(crate) struct Observer {
    cursor: Box<dyn WatchCursor>,
    pub(crate) model: ReferenceModel,
}

impl Observer {
    /// A model from the first revision that is still delivered, onto what the store held then.
    pub(crate) async fn new(storage: &dyn Storage) -> Self {
        let prefix = Prefix::parse("/").unwrap();
        let page = storage
            .range(&prefix, &apiserver_storage::RangeOptions::default())
            .await
            .unwrap();
        let mut model = ReferenceModel {
            revision: page.revision,
            ..ReferenceModel::default()
        };
        for entry in &page.entries {
            let seen = ObjectVersion::new(entry);
            let kind = model.kinds.entry(seen.kind.clone()).or_default();
            kind.insert(seen.key.clone(), Arc::new(seen));
        }
        let cursor = cursor(storage, page.revision).await;
        Self { cursor, model }
    }

    /// The store was opened again: everything that was delivered is still there, and reading goes on behind it.
    pub(crate) async fn reopen(&mut self, storage: &dyn Storage) {
        let now = storage.current_revision().await.unwrap();
        assert!(
            now >= self.model.revision,
            "{now} was recovered, {} was told",
            self.model.revision
        );
        self.cursor = cursor(storage, self.model.revision).await;
    }

    /// Takes every change up to now, in order.
    pub(crate) async fn catch_up(&mut self, mut each: impl FnMut(&ReferenceModel, Change)) {
        loop {
            let cursor = &mut self.cursor;
            let batch = poll_fn(|context| match cursor.poll_batch(context, BATCH) {
                Poll::Ready(batch) => Poll::Ready(Some(batch)),
                Poll::Pending => Poll::Ready(None),
            });
            let Some(batch) = batch.await else { return };
            for event in batch.unwrap() {
                let change = self.model.put(&event);
                each(&self.model, change);
            }
        }
    }
}

async fn cursor(storage: &dyn Storage, after: Revision) -> Box<dyn WatchCursor> {
    let interests = vec![WatchFilter::prefix(Prefix::parse("/").unwrap())];
    storage.watch(WatchRequest { interests, after }).await.unwrap()
}
