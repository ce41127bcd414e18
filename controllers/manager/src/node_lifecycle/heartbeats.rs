//! Signs of life of nodes, and the time since the last. Pure but for its lock.

use crate::views::{NodeView, created, find};
use jiff::Timestamp;
use machinery_client::Object;
use machinery_meta::ObjectKey;
use machinery_reconcile::ObjectReference;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Times at which nodes' signs of life changed, by the controller's own clock: the nodes' clocks prove nothing.
#[derive(Debug, Default)]
pub(super) struct HeartbeatTracker {
    nodes: Mutex<BTreeMap<ObjectKey, LastHeartbeat>>,
}

#[derive(Debug)]
struct LastHeartbeat {
    about: ObjectReference,
    /// Of `Ready`, which comes with the node's status.
    heartbeat: String,
    /// Time of the lease's renewal, as the watch delivered it last and as it was read last: the one may be behind the
    /// other, and alternating between the two is no sign of life.
    watched: String,
    read: String,
    /// `None` until the next look.
    at: Option<Duration>,
    /// Silence before the first reconcile: a node that has never reported is silent since it was made.
    before: Duration,
}

/// The present by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) monotonic: Duration,
    pub(super) wall: Timestamp,
}

/// Time at which a node's lease was renewed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal<'a> {
    /// As the watch delivered it.
    Watched(&'a str),
    /// As the server has it.
    Read(&'a str),
}

impl LastHeartbeat {
    fn of(about: &ObjectReference) -> Self {
        Self {
            about: about.clone(),
            heartbeat: String::new(),
            watched: String::new(),
            read: String::new(),
            at: None,
            before: Duration::ZERO,
        }
    }

    /// Reports whether a heartbeat has come since the last call: the lease or the status' heartbeat time has changed.
    fn has_moved(&mut self, heartbeat: &str, renewal: Renewal<'_>) -> bool {
        let (Renewal::Watched(renewed) | Renewal::Read(renewed)) = renewal;
        // Compared for change only, never with a clock: the node's may be wrong. A watch that is behind a read
        // repeats what that has shown, hence both are kept.
        let moved = self.heartbeat != heartbeat || (self.watched != renewed && self.read != renewed);
        heartbeat.clone_into(&mut self.heartbeat);
        let own = match renewal {
            Renewal::Watched(_) => &mut self.watched,
            Renewal::Read(_) => &mut self.read,
        };
        renewed.clone_into(own);
        moved
    }
}

impl HeartbeatTracker {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<ObjectKey, LastHeartbeat>) -> T) -> T {
        look(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Restarts the clock of every node.
    pub(super) fn reset_heartbeats(&self) {
        self.with(|nodes| {
            nodes.values_mut().for_each(|own| {
                own.at = None;
                own.before = Duration::ZERO;
            });
        });
    }

    /// Returns whether the node is new, and the time since its last heartbeat; a new heartbeat restarts the clock.
    pub(super) fn age(
        &self,
        node: &Object<NodeView>,
        about: &ObjectReference,
        renewal: Renewal<'_>,
        now: Now,
    ) -> (bool, Duration) {
        self.with(|nodes| {
            // By uid: a node that was deleted and registered again under its name is a new one.
            let new = nodes.get(node.key()).is_none_or(|own| own.about.uid != about.uid);
            let entry = nodes
                .entry(node.key().clone())
                .or_insert_with(|| LastHeartbeat::of(about));
            if entry.has_moved(&node.heartbeat, renewal) || new {
                entry.at = None;
                entry.about = about.clone();
                entry.before = Duration::ZERO;
            }
            if new {
                entry.before = silence_before(node, renewal, now.wall);
            }
            let at = *entry.at.get_or_insert(now.monotonic);
            (new, now.monotonic.saturating_sub(at) + entry.before)
        })
    }

    /// Forgets a node that is gone.
    pub(super) fn remove(&self, key: &ObjectKey) -> Option<ObjectReference> {
        self.with(|nodes| nodes.remove(key)).map(|own| own.about)
    }
}

/// Silence before the first reconcile of a node that has reported neither a status nor a lease.
fn silence_before(node: &Object<NodeView>, renewal: Renewal<'_>, now: Timestamp) -> Duration {
    let (Renewal::Watched(renewed) | Renewal::Read(renewed)) = renewal;
    if find(&node.conditions, "Ready").is_some() || !renewed.is_empty() {
        return Duration::ZERO;
    }
    let age = now.duration_since(created(&node.header));
    Duration::try_from(age).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use machinery_client::ApiResource;

    #[test]
    fn heartbeat_stale_watch_is_no_heartbeat() {
        let mut sign = LastHeartbeat::of(&ObjectReference::new(
            &ApiResource::of::<Node>(),
            &ObjectKey::new("", "n"),
            "u",
        ));
        assert!(sign.has_moved("h", Renewal::Watched("1")));
        assert!(sign.has_moved("h", Renewal::Read("2")));
        // The watch stays where it is, and the node has gone.
        for _ in 0..2 {
            assert!(!sign.has_moved("h", Renewal::Watched("1")));
            assert!(!sign.has_moved("h", Renewal::Read("2")));
        }
        assert!(!sign.has_moved("h", Renewal::Watched("2")));
        assert!(sign.has_moved("h", Renewal::Watched("3")));
        assert!(sign.has_moved("i", Renewal::Watched("3")));
    }
}
