//! Durations of plugins, reported to an [`Observer`] where there is one.

use crate::{Operation, Plugin};
use std::fmt;
use std::time::Duration;

/// A pass over the plugins, by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Admit,
    Validate,
}

/// Takes how long plugins took.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A monotonic clock.
    fn now(&self) -> Duration;

    /// One plugin, by its place in the chain.
    fn plugin(&self, ran: PluginRun, operation: Operation, took: Duration);

    /// All plugins together.
    fn step(&self, step: Step, rejected: bool, operation: Operation, took: Duration);
}

/// Outcome of a request at one plugin.
#[derive(Debug, Clone, Copy)]
pub struct PluginRun {
    pub at: usize,
    pub name: &'static str,
    pub step: Step,
    pub rejected: bool,
}

/// Times one step.
pub(crate) struct Timing<'a> {
    observer: Option<&'a dyn Observer>,
    step: Step,
    operation: Operation,
    began: Duration,
    last: Duration,
}

impl<'a> Timing<'a> {
    pub(crate) fn begin(observer: Option<&'a dyn Observer>, step: Step, operation: Operation) -> Self {
        let began = observer.map_or(Duration::ZERO, |observer| observer.now());
        Self {
            observer,
            step,
            operation,
            began,
            last: began,
        }
    }

    /// Counts the time of a plugin, where it has the step.
    pub(crate) fn plugin(&mut self, at: usize, name: &'static str, step: Option<Step>, rejected: bool) {
        let Some(observer) = self.observer else { return };
        let now = observer.now();
        if let Some(step) = step {
            let ran = PluginRun {
                at,
                name,
                step,
                rejected,
            };
            observer.plugin(ran, self.operation, now.saturating_sub(self.last));
        }
        self.last = now;
    }

    /// Counts a plugin that has nothing to say about the request's resource: upstream's is called, and returns at once.
    pub(crate) fn passed(&self, at: usize, plugin: &dyn Plugin, step: Option<Step>) {
        let counted = self.observer.zip(step);
        let Some((observer, step)) = counted.filter(|_| plugin.operations().contains(&self.operation)) else {
            return;
        };
        let ran = PluginRun {
            at,
            name: plugin.name(),
            step,
            rejected: false,
        };
        observer.plugin(ran, self.operation, Duration::ZERO);
    }

    pub(crate) fn ended(self, rejected: bool) {
        if let Some(observer) = self.observer {
            // What follows the last plugin is nothing.
            let took = self.last.saturating_sub(self.began);
            observer.step(self.step, rejected, self.operation, took);
        }
    }
}
