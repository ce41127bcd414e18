//! Active pods in the order in which they are tried.
//!
//! The most important first, as upstream. Among equals the namespaces take turns by the steps that their attempts took
//! (start-time fair queueing), and within a namespace the longest waiting pod is first (decision 0093).

use machinery_meta::ObjectKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Steps charged for an attempt beside those that it counts: what an attempt at a small pod takes.
const STEPS_AN_ATTEMPT: u64 = 256;

/// Time since which a pod waits, and a number that distinguishes equals.
pub(crate) type Waiting = (Duration, u64);

/// Active pods by priority.
#[derive(Debug, Default)]
pub(crate) struct ActivePods {
    levels: BTreeMap<Reverse<i32>, Level>,
}

/// Active pods of one priority. It is forgotten, with what was charged, when no pod of it waits.
#[derive(Debug, Default)]
struct Level {
    pods: HashMap<Arc<str>, BTreeMap<Waiting, ObjectKey>>,
    /// Namespaces with pods, by the steps charged to them.
    turns: BTreeSet<(u64, Waiting, Arc<str>)>,
    /// Steps charged to a namespace, counted from when it began to wait.
    charged: HashMap<Arc<str>, u64>,
    /// Steps charged to the namespace whose turn was last, before that turn: no namespace begins below.
    clock: u64,
    /// Namespaces charged when those that owe nothing are forgotten next.
    forget_at: usize,
}

impl ActivePods {
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub(crate) fn insert(&mut self, priority: i32, waiting: Waiting, key: &ObjectKey) {
        let level = self.levels.entry(Reverse(priority)).or_default();
        level.insert(waiting, key);
    }

    pub(crate) fn remove(&mut self, priority: i32, waiting: Waiting, key: &ObjectKey) {
        if let Some(level) = self.levels.get_mut(&Reverse(priority)) {
            level.remove(waiting, &key.namespace);
            self.forget_empty(priority);
        }
    }

    /// The pod that is tried next.
    pub(crate) fn first(&self) -> Option<&ObjectKey> {
        let (_, level) = self.levels.first_key_value()?;
        let (_, waiting, namespace) = level.turns.first()?;
        level.pods.get(namespace)?.get(waiting)
    }

    /// Takes the pod that is tried next.
    pub(crate) fn pop_first(&mut self) -> Option<ObjectKey> {
        let (Reverse(priority), level) = self.levels.first_key_value()?;
        let (priority, (charged, waiting, namespace)) = (*priority, level.turns.first()?.clone());
        let level = self.levels.get_mut(&Reverse(priority))?;
        level.clock = charged;
        let key = level.remove(waiting, &namespace);
        self.forget_empty(priority);
        key
    }

    /// Charges an attempt at a pod of this priority to its namespace.
    pub(crate) fn charge(&mut self, priority: i32, namespace: &str, steps: usize) {
        if let Some(level) = self.levels.get_mut(&Reverse(priority)) {
            level.charge(namespace, STEPS_AN_ATTEMPT.saturating_add(steps as u64));
        }
    }

    fn forget_empty(&mut self, priority: i32) {
        if self
            .levels
            .get(&Reverse(priority))
            .is_some_and(|level| level.turns.is_empty())
        {
            self.levels.remove(&Reverse(priority));
        }
    }
}

impl Level {
    fn insert(&mut self, waiting: Waiting, key: &ObjectKey) {
        let namespace: Arc<str> = match self.pods.get_key_value(&*key.namespace) {
            Some((namespace, _)) => Arc::clone(namespace),
            None => self.begin(&key.namespace),
        };
        self.turn(&namespace, |level| {
            let pods = level.pods.entry(Arc::clone(&namespace)).or_default();
            pods.insert(waiting, key.clone());
        });
    }

    fn remove(&mut self, waiting: Waiting, namespace: &str) -> Option<ObjectKey> {
        self.turn(namespace, |level| {
            let pods = level.pods.get_mut(namespace)?;
            let key = pods.remove(&waiting);
            if pods.is_empty() {
                level.pods.remove(namespace);
            }
            key
        })
    }

    /// Steps are charged to a namespace without pods too: it may bring the next ones one by one.
    fn charge(&mut self, namespace: &str, steps: u64) {
        self.turn(namespace, |level| {
            let begun = level.clock;
            let charged = level.charged.entry(namespace.into()).or_insert(begun);
            *charged = charged.saturating_add(steps);
        });
    }

    /// A namespace begins to wait: it owes what it was charged above the others, and is owed nothing.
    fn begin(&mut self, namespace: &str) -> Arc<str> {
        if self.charged.len() >= self.forget_at {
            let (pods, clock) = (&self.pods, self.clock);
            self.charged
                .retain(|namespace, charged| *charged > clock || pods.contains_key(namespace));
            self.forget_at = 2 * self.charged.len() + 16;
        }
        let namespace: Arc<str> = namespace.into();
        let charged = self.charged.entry(Arc::clone(&namespace)).or_default();
        *charged = self.clock.max(*charged);
        namespace
    }

    /// Changes a namespace, whose turn follows from its oldest pod and what it was charged.
    fn turn<T>(&mut self, namespace: &str, change: impl FnOnce(&mut Self) -> T) -> T {
        if let Some(turn) = self.turn_of(namespace) {
            self.turns.remove(&turn);
        }
        let result = change(self);
        if let Some(turn) = self.turn_of(namespace) {
            self.turns.insert(turn);
        }
        result
    }

    fn turn_of(&self, namespace: &str) -> Option<(u64, Waiting, Arc<str>)> {
        let (namespace, pods) = self.pods.get_key_value(namespace)?;
        let (waiting, _) = pods.first_key_value()?;
        let charged = self.charged.get(namespace).copied().unwrap_or(self.clock);
        Some((charged, *waiting, Arc::clone(namespace)))
    }
}
