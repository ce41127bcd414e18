//! Calls to one node: few at a time, and those that wait for them in the turn of their namespaces.

use machinery_client::TurnQueue;
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use std::collections::BTreeSet;

/// Calls to one node at a time.
pub(super) const MOST: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct NodeCalls {
    running: usize,
    line: TurnQueue,
    /// Claims and volumes that were taken from the line and have not come yet.
    invited: BTreeSet<ObjectKey>,
}

impl NodeCalls {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self {
            running: 0,
            line: TurnQueue::new(runtime.clone()),
            invited: BTreeSet::new(),
        }
    }

    /// Reports whether the node may be called for this now; otherwise it is in line. A new call is behind those in line,
    /// unless nothing goes on that would wake them.
    pub(super) fn admits(&mut self, key: &ObjectKey) -> bool {
        let is_next = self.invited.remove(key) || self.running == 0 || self.line.is_empty();
        let admitted = is_next && self.running < MOST;
        if !admitted {
            self.line.add(&key.to_string());
        }
        admitted
    }

    /// Begins a call where there is room for one.
    pub(super) fn begin(&mut self) -> bool {
        let has_room = self.running < MOST;
        self.running += usize::from(has_room);
        has_room
    }

    /// Ends a call, and returns the next one.
    pub(super) fn end(&mut self) -> Option<ObjectKey> {
        self.running -= 1;
        let turn = self.line.take_any()?;
        let key = match turn.object.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(namespace, name),
            None => ObjectKey::cluster(&*turn.object),
        };
        self.invited.insert(key.clone());
        Some(key)
    }

    /// Reports whether nothing is to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant with ever new claims for a node keeps another's waiting for one call.
    #[tokio::test]
    async fn calls_of_a_node_are_made_in_the_turn_of_namespaces() {
        let mut calls = NodeCalls::new(&Runtime::real());
        let key = |namespace: &str, at: usize| ObjectKey::new(namespace, format!("c{at}"));
        for at in 0..2 {
            assert!(calls.admits(&key("busy", at)) && calls.begin());
        }
        assert!((2..50).all(|at| !calls.admits(&key("busy", at))), "two at a time");
        assert!(!calls.admits(&key("small", 0)) && !calls.begin());
        assert_eq!(calls.end(), Some(key("busy", 2)));
        assert!(
            !calls.admits(&key("busy", 99)),
            "a new one is behind those in line"
        );
        assert!(calls.admits(&key("busy", 2)) && calls.begin());
        assert_eq!(calls.end(), Some(key("small", 0)));
        assert!(calls.admits(&key("small", 0)) && calls.begin());
    }

    #[tokio::test]
    async fn calls_go_on_where_the_next_one_does_not_come() {
        let mut calls = NodeCalls::new(&Runtime::real());
        let [a, b, volume] = [
            ObjectKey::new("n", "a"),
            ObjectKey::new("n", "b"),
            ObjectKey::cluster("v"),
        ];
        assert!(calls.begin() && calls.begin() && !calls.begin());
        assert!(!calls.admits(&a) && !calls.admits(&volume));
        assert_eq!((calls.end(), calls.end()), (Some(a), Some(volume)));
        assert!(calls.is_idle() && calls.admits(&b), "nobody is waited for");
    }
}
