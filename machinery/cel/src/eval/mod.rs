//! Evaluation: a plan that is made once, and a machine that runs it with limits.
//!
//! Costs are counted where cel-go's observers count them, so that totals are equal: one for a variable and for each
//! select, ten for a list, what [`crate::cost`] says for calls, nothing for constants.

mod attributes;
mod folds;
mod machine;
mod meter;
pub(crate) mod plan;
mod planner;

pub(crate) use machine::Machine;
pub(crate) use meter::{BYTES_OF_A_STEP, Meter};
pub use meter::{Interrupt, Limits, MAX_MEMORY, MAX_WORK_OF_OBJECT, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub(crate) use planner::plan;

use crate::value::Evaluated;

/// Values of the variables of an expression.
pub trait Activation {
    /// The value of a variable; none when there is no such variable.
    fn resolve<'s>(&'s self, name: &str) -> Option<Evaluated<'s>>;
}

/// An activation of a few values.
#[derive(Debug, Default)]
pub struct Variables<'a> {
    list: Vec<(&'a str, crate::value::Value<'a>)>,
}

impl<'a> Variables<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: crate::value::Value<'a>) -> Self {
        self.list.push((name, value));
        self
    }
}

impl Activation for Variables<'_> {
    fn resolve<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        let found = self.list.iter().find(|own| own.0 == name)?;
        Some(Ok(found.1.clone()))
    }
}
