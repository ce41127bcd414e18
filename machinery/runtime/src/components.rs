//! Components of an instance that must not end unnoticed, and the panics of its tasks.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Supervised components by name, and panics by task. Health checks and metrics read it.
#[derive(Debug, Default)]
pub struct Components(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Each running component; with the message of its panic while it is down.
    known: BTreeMap<&'static str, Option<String>>,
    panics: BTreeMap<&'static str, u64>,
}

impl Components {
    /// Every running component by name; the message of its panic while it is down.
    pub fn all(&self) -> Vec<(&'static str, Option<String>)> {
        let inner = self.0.lock();
        inner
            .known
            .iter()
            .map(|(name, down)| (*name, down.clone()))
            .collect()
    }

    /// Panics so far, by the name of the task or component.
    pub fn panics(&self) -> Vec<(&'static str, u64)> {
        let inner = self.0.lock();
        inner.panics.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// A component runs (again).
    pub fn began(&self, name: &'static str) {
        self.0.lock().known.insert(name, None);
    }

    /// A component is down until it begins again.
    pub fn failed(&self, name: &'static str, message: &str) {
        self.0.lock().known.insert(name, Some(message.to_owned()));
    }

    /// A component ended as it should.
    pub fn ended(&self, name: &'static str) {
        self.0.lock().known.remove(name);
    }

    pub(crate) fn panicked(&self, name: &'static str) {
        *self.0.lock().panics.entry(name).or_default() += 1;
    }
}
