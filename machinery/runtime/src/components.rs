//! Components of an instance that must not end unnoticed, the panics of its tasks, and what it leads.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Failures that wait to be taken by [`Components::next_failure`]; of more the oldest are forgotten.
const MAX_FAILURES: usize = 64;

/// Supervised components by name, and panics by task. Health checks, metrics and events read it.
#[derive(Debug, Default)]
pub struct Components {
    inner: Mutex<Inner>,
    failed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<&'static str, Component>,
    panics: BTreeMap<&'static str, u64>,
    failures: VecDeque<&'static str>,
    elections: BTreeMap<String, Election>,
}

/// A lease that this instance is a candidate for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Election {
    /// It is the leader.
    pub leads: bool,
    /// Renewals that had to read the lease first.
    pub slow_paths: u64,
}

#[derive(Debug, Default)]
struct Component {
    state: State,
    restarts: u64,
    /// See [`Components::break_down`].
    broken: Arc<Notify>,
}

#[derive(Debug, Default)]
enum State {
    Running,
    /// With the message of its panic.
    Down(String),
    /// It has done all it had to do, or never ran.
    #[default]
    Ended,
}

impl Components {
    /// Every component that runs or should, by name; the message of its panic while it is down.
    pub fn all(&self) -> Vec<(&'static str, Option<String>)> {
        let inner = self.inner.lock();
        let present = |(name, component): (&&'static str, &Component)| match &component.state {
            State::Running => Some((*name, None)),
            State::Down(message) => Some((*name, Some(message.clone()))),
            State::Ended => None,
        };
        inner.known.iter().filter_map(present).collect()
    }

    /// Restarts by component.
    pub fn restarts(&self) -> Vec<(&'static str, u64)> {
        let inner = self.inner.lock();
        let restarts = |(name, component): (&&'static str, &Component)| (*name, component.restarts);
        inner.known.iter().map(restarts).collect()
    }

    /// Panics so far, by the name of the task or component.
    pub fn panics(&self) -> Vec<(&'static str, u64)> {
        let inner = self.inner.lock();
        inner.panics.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// The next component that failed and begins again. Each failure is taken once.
    pub async fn next_failure(&self) -> &'static str {
        loop {
            let failed = self.failed.notified();
            if let Some(name) = self.inner.lock().failures.pop_front() {
                return name;
            }
            failed.await;
        }
    }

    /// Makes a running component panic at its next wait. Tests show with it that each of them comes back.
    pub fn break_down(&self, name: &str) {
        if let Some(component) = self.inner.lock().known.get(name) {
            component.broken.notify_one();
        }
    }

    pub(crate) fn broken(&self, name: &'static str) -> Arc<Notify> {
        Arc::clone(&self.inner.lock().known.entry(name).or_default().broken)
    }

    pub(crate) fn began(&self, name: &'static str) {
        self.inner.lock().known.entry(name).or_default().state = State::Running;
    }

    /// A component is down until it begins again.
    pub(crate) fn failed(&self, name: &'static str, message: &str) {
        let mut inner = self.inner.lock();
        let component = inner.known.entry(name).or_default();
        component.state = State::Down(message.to_owned());
        component.restarts += 1;
        if inner.failures.len() == MAX_FAILURES {
            inner.failures.pop_front();
        }
        inner.failures.push_back(name);
        drop(inner);
        self.failed.notify_one();
    }

    pub(crate) fn ended(&self, name: &'static str) {
        self.inner.lock().known.entry(name).or_default().state = State::Ended;
    }

    /// Records whether this instance leads by this lease.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.inner
            .lock()
            .elections
            .entry(lease.to_owned())
            .or_default()
            .leads = leads;
    }

    /// A renewal of this lease had to read it first.
    pub fn slow_path(&self, lease: &str) {
        self.inner
            .lock()
            .elections
            .entry(lease.to_owned())
            .or_default()
            .slow_paths += 1;
    }

    /// Every lease that this instance is a candidate for.
    pub fn elections(&self) -> Vec<(String, Election)> {
        let inner = self.inner.lock();
        inner
            .elections
            .iter()
            .map(|(lease, own)| (lease.clone(), *own))
            .collect()
    }

    pub(crate) fn panicked(&self, name: &'static str) {
        *self.inner.lock().panics.entry(name).or_default() += 1;
    }
}
