//! Outcomes of policies, for the server's metrics.

use std::fmt;
use std::time::Duration;

/// Upstream's kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    None,
    Compile,
    Invalid,
    OutOfBudget,
}

impl ErrorType {
    /// The value of a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "no_error",
            Self::Compile => "compile_error",
            Self::Invalid => "invalid_error",
            Self::OutOfBudget => "out_of_budget",
        }
    }

    /// The kind of an error by its text.
    pub(crate) fn of(text: &str) -> Self {
        if text.starts_with("compilation") {
            Self::Compile
        } else if text.starts_with("validation failed due to running out of cost budget") {
            Self::OutOfBudget
        } else {
            Self::Invalid
        }
    }
}

/// An expression of a policy that was evaluated for a binding.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRun<'a> {
    pub policy: &'a str,
    pub binding: &'a str,
    pub error: ErrorType,
    pub took: Duration,
}

/// Takes outcomes of expressions.
pub trait PolicyObserver: fmt::Debug + Send + Sync {
    /// A validation was evaluated, and this followed: `allow`, `deny`, `warn` or `audit`.
    fn validated(&self, run: PolicyRun<'_>, action: &'static str);

    /// A mutation was made, or could not be.
    fn mutated(&self, run: PolicyRun<'_>);
}
