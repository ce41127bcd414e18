//! Who was promised how much of this node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use machinery_semantics::resources::pod_requests;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::pods::spec;

/// Thousandths of a processor, and bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

impl Share {
    /// What a pod asks for.
    pub fn of(pod: &Pod) -> Self {
        let requests = pod_requests(spec(pod));
        Self {
            cpu: requests.get("cpu").millis(),
            memory: requests.get("memory").units(),
        }
    }
}

/// What the node's pods were promised, by uid.
#[derive(Debug)]
pub struct Room {
    allocatable: Share,
    inner: Mutex<Promises>,
}

#[derive(Debug, Default)]
struct Promises {
    shares: HashMap<String, Share>,
    /// Those that wait for more, and how they are woken.
    waiting: HashMap<String, Arc<Notify>>,
}

impl Promises {
    fn wake_all(&mut self) {
        self.waiting.drain().for_each(|(_, wake)| wake.notify_one());
    }
}

impl Room {
    /// A node that has so much for its pods.
    pub fn new(allocatable: Share) -> Self {
        Self {
            allocatable,
            inner: Mutex::default(),
        }
    }

    /// A pod has been promised this much already.
    pub fn hold(&self, uid: &str, share: Share) {
        self.inner.lock().shares.insert(uid.to_owned(), share);
    }

    /// Promises a pod another share, or says in upstream's words why not; then it is woken when there may be room.
    pub fn change(&self, uid: &str, share: Share, wake: &Arc<Notify>) -> Result<(), String> {
        let mut inner = self.inner.lock();
        let before = inner.shares.get(uid).copied().unwrap_or_default();
        let others = inner.shares.iter().filter(|(other, _)| *other != uid);
        let used = others.fold(Share::default(), |sum, (_, share)| Share {
            cpu: sum.cpu + share.cpu,
            memory: sum.memory + share.memory,
        });
        let checks = [
            ("cpu", share.cpu, used.cpu, self.allocatable.cpu),
            ("memory", share.memory, used.memory, self.allocatable.memory),
        ];
        for (name, requested, used, capacity) in checks {
            if requested > 0 && requested + used > capacity {
                inner.waiting.insert(uid.to_owned(), wake.clone());
                return Err(format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
                ));
            }
        }
        inner.shares.insert(uid.to_owned(), share);
        if share.cpu < before.cpu || share.memory < before.memory {
            inner.wake_all();
        }
        Ok(())
    }

    /// A pod uses nothing any more.
    pub fn release(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(uid);
        if inner.shares.remove(uid).is_some() {
            inner.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_is_woken_when_another_leaves() {
        let share = |cpu| Share { cpu, memory: 1 };
        let room = Room::new(share(1000));
        let wake = Arc::new(Notify::new());
        room.hold("a", share(500));
        room.hold("b", Share { cpu: 400, memory: 0 });
        let refused = room.change("b", Share { cpu: 600, memory: 0 }, &wake);
        assert_eq!(
            refused.unwrap_err(),
            "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
        );
        let woken = || futures::FutureExt::now_or_never(wake.notified()).is_some();
        assert!(!woken());
        room.release("a");
        assert!(woken());
        room.change("b", Share { cpu: 600, memory: 0 }, &wake).unwrap();
    }
}
