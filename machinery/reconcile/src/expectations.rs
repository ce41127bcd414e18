//! Expectations: writes that were sent and not seen yet.
//!
//! A cache lags behind what its own controller did. Deciding on it too early creates twice or deletes too many, so a
//! key waits until its cache shows what was done. There is no time limit, because there is always an exact answer:
//!
//! - a creation that was acknowledged at a revision is over once the object is seen, or the cache is past the revision;
//! - one whose answer was lost is sent again under the same name (see [`crate::names`]);
//! - a change that was acknowledged at a revision is over once the object is seen at it, or is not seen any more; one
//!   whose answer was lost is to be looked up;
//! - a deletion is over once the object is seen deleting, or is not seen any more.
//!
//! An event wakes the key that waits, and a list where it swallowed the event ([`Expectations::requeue_after_lists`]): an object
//! that was made and removed again before a list came has none.

use crate::QueueKey;
use crate::queue::WorkQueue;
use machinery_client::{Informer, Projection, Subscription};
use machinery_meta::{ObjectKey, Revision, Uid};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Outstanding creations and deletions by the key of the owner that requested them.
#[derive(Debug)]
pub struct Expectations<K> {
    pending: Arc<Mutex<BTreeMap<K, Pending>>>,
}

#[derive(Debug, Default)]
struct Pending {
    /// Acknowledged at a revision, or not (yet).
    creations: BTreeMap<ObjectKey, Option<Revision>>,
    /// As the creations, of objects that were there.
    changes: BTreeMap<ObjectKey, Option<Revision>>,
    deletions: BTreeMap<Uid, ObjectKey>,
}

impl<K> Default for Expectations<K> {
    fn default() -> Self {
        Self {
            pending: Arc::new(Mutex::new(BTreeMap::new())),
        }
    }
}

impl<K: Ord + Clone + Debug + Send + 'static> Expectations<K> {
    /// Requeues the keys with expectations after each list of the cache, until the subscription is dropped. `of` makes the
    /// queue's key.
    #[must_use = "keys are requeued until the subscription is dropped"]
    pub fn requeue_after_lists<P: Projection, Q: QueueKey>(
        &self,
        cache: &Informer<P>,
        queue: WorkQueue<Q>,
        of: impl Fn(&K) -> Q + Send + Sync + 'static,
    ) -> Subscription {
        let pending = Arc::clone(&self.pending);
        cache.on_listed(move || {
            let waiting: Vec<Q> = pending.lock().keys().map(&of).collect();
            waiting.into_iter().for_each(|key| queue.add(key));
        })
    }

    /// Notes that a create is about to be sent.
    pub fn creating(&self, key: &K, object: ObjectKey) {
        self.change(key, |pending| pending.creations.extend([(object, None)]));
    }

    /// Notes that a create was acknowledged.
    pub fn created(&self, key: &K, object: &ObjectKey, revision: Revision) {
        self.change(key, |pending| {
            if let Some(known) = pending.creations.get_mut(object) {
                *known = Some(revision);
            }
        });
    }

    /// Notes that a create was refused: the server created nothing.
    pub fn not_created(&self, key: &K, object: &ObjectKey) {
        self.change(key, |pending| pending.creations.retain(|own, _| own != object));
    }

    /// Notes that a change of an object that the cache shows is about to be sent.
    pub fn changing(&self, key: &K, object: ObjectKey) {
        self.change(key, |pending| pending.changes.extend([(object, None)]));
    }

    /// Notes that a change was acknowledged, or that the object was looked up and is at this revision.
    pub fn changed(&self, key: &K, object: &ObjectKey, revision: Revision) {
        self.change(key, |pending| {
            if let Some(known) = pending.changes.get_mut(object) {
                *known = Some(revision);
            }
        });
    }

    /// Notes that a change was refused, or the object is gone: no event will come.
    pub fn not_changed(&self, key: &K, object: &ObjectKey) {
        self.change(key, |pending| pending.changes.retain(|own, _| own != object));
    }

    /// Notes that a delete is about to be sent.
    pub fn deleting(&self, key: &K, object: ObjectKey, uid: Uid) {
        self.change(key, |pending| drop(pending.deletions.insert(uid, object)));
    }

    /// Notes that a delete failed, or that its outcome is unknown: it may be sent again, to no harm.
    pub fn not_deleted(&self, key: &K, uid: &Uid) {
        self.change(key, |pending| drop(pending.deletions.remove(uid)));
    }

    /// Drops the expectations that the cache has met, and returns the others.
    pub fn settle<P: Projection>(&self, key: &K, cache: &Informer<P>) -> Awaited {
        // The position first: all up to it is in the store by the time the store is read.
        let position = cache.position();
        let mut awaited = Awaited::default();
        self.change(key, |pending| {
            pending.creations.retain(|object, revision| {
                let seen =
                    // By revision too: an object that was created and deleted again is never in the cache, and
                    // upstream's counters would wait out their five minutes.
                    cache.get(object).is_some() || revision.is_some_and(|revision| revision <= position);
                !seen
            });
            pending.changes.retain(|object, revision| {
                let present = cache.get(object);
                revision.is_none_or(|revision| present.is_some_and(|present| present.revision < revision))
            });
            pending.deletions.retain(|uid, object| {
                let present = cache.get(object);
                // An object that is marked for deletion counts as deleted: finalizers may keep it for long.
                present.is_some_and(|present| present.uid() == uid && !present.header.is_deleting())
            });
            let acknowledged =
                |all: &BTreeMap<ObjectKey, Option<Revision>>| all.values().any(Option::is_some);
            awaited.events = acknowledged(&pending.creations)
                || acknowledged(&pending.changes)
                || !pending.deletions.is_empty();
            awaited.unacknowledged = lost(&pending.creations);
            awaited.doubtful = lost(&pending.changes);
        });
        awaited
    }

    /// The object behind the key is gone.
    pub fn forget(&self, key: &K) {
        self.pending.lock().remove(key);
    }

    /// Number of keys with expectations.
    pub fn len(&self) -> usize {
        self.pending.lock().len()
    }

    /// Reports whether no key has expectations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn change(&self, key: &K, change: impl FnOnce(&mut Pending)) {
        let mut all = self.pending.lock();
        let pending = all.entry(key.clone()).or_default();
        change(pending);
        if pending.creations.is_empty() && pending.changes.is_empty() && pending.deletions.is_empty() {
            all.remove(key);
        }
    }
}

/// Writes that a key still waits for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The cache has still to show something; its event will wake the key.
    pub events: bool,
    /// Creations whose answer never came; they are to be sent again under these names.
    pub unacknowledged: Vec<ObjectKey>,
    /// Changes whose answer never came; the objects are to be looked up.
    pub doubtful: Vec<ObjectKey>,
}

fn lost(sent: &BTreeMap<ObjectKey, Option<Revision>>) -> Vec<ObjectKey> {
    let without = sent.iter().filter(|(_, revision)| revision.is_none());
    without.map(|(object, _)| object.clone()).collect()
}

impl Awaited {
    /// Nothing is outstanding.
    pub fn is_settled(&self) -> bool {
        !self.events && self.unacknowledged.is_empty() && self.doubtful.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ControllerStats;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use machinery_client::{Client, Informers};
    use machinery_runtime::Simulation;
    use serde_json::{Value, json};
    use std::time::Duration;

    /// A server of no ConfigMaps at revision 1, whose first watch of them ends with 410; it has none at revision 9 afterwards.
    fn compacted(requests: &Mutex<u32>, query: &str) -> (u16, Option<Value>) {
        let status = |code: u16| json!({"kind": "Status", "status": "Failure", "code": code});
        let list = |revision: &str| json!({"metadata": {"resourceVersion": revision}, "items": []});
        if query.contains("sendInitialEvents") {
            return (400, Some(status(400)));
        }
        let mut requests = requests.lock();
        *requests += 1;
        match *requests {
            1 => (200, Some(list("1"))),
            2 => (410, Some(status(410))),
            3 => (200, Some(list("9"))),
            _ => (200, None),
        }
    }

    #[test]
    fn expectations_that_list_swallowed_wake_their_key() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let requests: Arc<Mutex<u32>> = Arc::default();
        let server = runtime.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (code, answer) = compacted(&requests, request.uri().query().unwrap_or_default());
            let server = server.clone();
            async move {
                // What is expected is noted before the watch ends.
                server.sleep(Duration::from_secs(1)).await;
                let Some(answer) = answer else {
                    return std::future::pending().await;
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(answer).unwrap())
            }
        });
        simulation.run(async move {
            let client = Client::in_process(service, runtime.clone());
            let maps: Informer<()> = Informers::new(client, runtime.clone()).of::<ConfigMap, _>();
            maps.synced().await;
            let stats = Arc::new(ControllerStats::of_queue(runtime.metrics(), "test"));
            let queue = WorkQueue::new(runtime.clone(), stats);
            let expectations = Expectations::<ObjectKey>::default();
            let _woken = expectations.requeue_after_lists(&maps, queue.clone(), ObjectKey::clone);
            let (key, made) = (ObjectKey::new("n", "owner"), ObjectKey::new("n", "made"));
            expectations.creating(&key, made.clone());
            expectations.created(&key, &made, Revision(5));
            assert!(expectations.settle(&key, &maps).events);
            // The object was made, and removed again, while no watch ran.
            assert_eq!(queue.next().await, key);
            assert!(expectations.settle(&key, &maps).is_settled());
        });
    }
}
