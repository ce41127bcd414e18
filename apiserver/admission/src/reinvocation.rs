//! The second pass over mutating plugins: where a webhook has changed the object, plugins see it again, and so do webhooks that were
//! called before the change and want to (upstream's `reinvocationContext`).

use machinery_schema::Tree;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// State of one request.
#[derive(Debug, Default)]
pub struct Reinvocation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    is_second: bool,
    /// Webhooks that have been called and want to see later changes.
    called: BTreeSet<String>,
    /// Of these, those that a later change has reached.
    again: BTreeSet<String>,
    /// The object as the webhooks left it.
    left: Option<Tree>,
}

impl Reinvocation {
    /// Begins the second pass, where the first one asked for it.
    pub(crate) fn begin_second(&self) -> bool {
        let mut state = self.0.lock();
        let begins = state.wanted && !state.is_second;
        state.is_second |= begins;
        begins
    }

    pub fn is_second(&self) -> bool {
        self.0.lock().is_second
    }

    /// Notes that a webhook has changed the object.
    pub fn changed(&self) {
        let mut state = self.0.lock();
        state.wanted = true;
        state.recall();
    }

    /// Notes that a webhook was called that wants to see later changes.
    pub fn called(&self, webhook: &str) {
        self.0.lock().called.insert(webhook.to_owned());
    }

    /// Reports whether a webhook is called in the second pass.
    pub fn is_due(&self, webhook: &str) -> bool {
        self.0.lock().again.contains(webhook)
    }

    /// At the beginning of a second pass: changes of plugins since the first one count as a webhook's.
    pub fn compare(&self, object: Option<&Tree>) {
        let mut state = self.0.lock();
        if state.is_second && state.left.as_ref() != object {
            state.recall();
        }
    }

    /// At the end of a first pass.
    pub fn leave(&self, object: Option<&Tree>) {
        let mut state = self.0.lock();
        if state.wanted && !state.is_second {
            state.left = object.cloned();
        }
    }
}

impl State {
    fn recall(&mut self) {
        let called = std::mem::take(&mut self.called);
        self.again.extend(called);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_is_called_again_after_later_changes_alone() {
        let state = Reinvocation::default();
        state.called("first");
        assert!(!state.begin_second(), "nothing has changed");
        state.changed();
        state.called("last");
        state.leave(None);
        assert!(state.begin_second() && state.is_second());
        assert!(!state.begin_second(), "there are two passes at most");
        state.compare(None);
        assert!(state.is_due("first") && !state.is_due("last"));
        let changed = Tree::from_json("{}").unwrap();
        state.compare(Some(&changed));
        assert!(state.is_due("last"), "plugins have changed the object");
    }
}
