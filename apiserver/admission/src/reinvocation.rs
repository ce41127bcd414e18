//! The second pass over mutating plugins: where a webhook or policy has changed the object, plugins see it again, and so do webhooks and
//! policies that were called before the change and want to (upstream's `reinvocationContext`).

use machinery_schema::Tree;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// A plugin that calls others, each of which decides for itself whether it wants to see later changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Webhooks,
    Policies,
}

/// State of one request.
#[derive(Debug, Default)]
pub struct Reinvocation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    is_second: bool,
    webhooks: Calls,
    policies: Calls,
}

/// Calls of one plugin.
#[derive(Debug, Default)]
struct Calls {
    /// Webhooks and policies that have been called and want to see later changes.
    called: BTreeSet<String>,
    /// Of these, those that a later change has reached.
    again: BTreeSet<String>,
    /// The object as the plugin left it.
    left: Option<Tree>,
}

impl Reinvocation {
    /// Begins the second pass, where the first one requested it.
    pub(crate) fn begin_second(&self) -> bool {
        let mut state = self.0.lock();
        let begins = state.wanted && !state.is_second;
        state.is_second |= begins;
        begins
    }

    pub fn is_second(&self) -> bool {
        self.0.lock().is_second
    }

    /// Notes that a webhook or policy has changed the object.
    pub fn changed(&self, by: Caller) {
        let mut state = self.0.lock();
        state.wanted = true;
        state.of(by).recall();
    }

    /// Notes that one was called that wants to see later changes.
    pub fn called(&self, by: Caller, name: &str) {
        self.0.lock().of(by).called.insert(name.to_owned());
    }

    /// Reports whether one is called in the second pass.
    pub fn is_due(&self, by: Caller, name: &str) -> bool {
        self.0.lock().of(by).again.contains(name)
    }

    /// Begins a second pass: changes of plugins since the first one count as the plugin's own.
    pub fn compare(&self, by: Caller, object: Option<&Tree>) {
        let mut state = self.0.lock();
        if state.is_second && state.of(by).left.as_ref() != object {
            state.of(by).recall();
        }
    }

    /// Ends a first pass; what is to be compared is kept where there may be a second one.
    pub fn leave(&self, by: Caller, object: Option<&Tree>) {
        let mut state = self.0.lock();
        let waits = by == Caller::Policies && !state.of(by).called.is_empty();
        if (state.wanted || waits) && !state.is_second {
            state.of(by).left = object.cloned();
        }
    }
}

impl State {
    fn of(&mut self, by: Caller) -> &mut Calls {
        match by {
            Caller::Webhooks => &mut self.webhooks,
            Caller::Policies => &mut self.policies,
        }
    }
}

impl Calls {
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
        state.called(Caller::Webhooks, "first");
        assert!(!state.begin_second(), "nothing has changed");
        state.changed(Caller::Webhooks);
        state.called(Caller::Webhooks, "last");
        state.leave(Caller::Webhooks, None);
        assert!(state.begin_second() && state.is_second());
        assert!(!state.begin_second(), "there are two passes at most");
        state.compare(Caller::Webhooks, None);
        assert!(state.is_due(Caller::Webhooks, "first") && !state.is_due(Caller::Webhooks, "last"));
        let changed = Tree::from_json("{}").unwrap();
        state.compare(Caller::Webhooks, Some(&changed));
        assert!(
            state.is_due(Caller::Webhooks, "last"),
            "plugins have changed the object"
        );
    }
}
