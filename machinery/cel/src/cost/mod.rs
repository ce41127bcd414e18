//! Costs: what an expression may cost before it runs, and what each call did cost.
//!
//! Both have upstream's figures (cel-go's `checker/cost.go` and `interpreter/runtimecost.go`, apiserver's
//! `pkg/cel/library/cost.go`); a change of them is a change of what definitions are accepted.

mod estimate;
mod functions;
mod range;
mod runtime;
mod work;

pub(crate) use estimate::estimate;
pub use estimate::{NoSizes, Sizes};
pub use range::CostEstimate;
pub(crate) use runtime::{CallRule, call, equality, looks_at_an_edge, rule};
pub(crate) use work::greatest_work;

/// A new list, map and object.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const OBJECT: u64 = 40;
/// Reading a character of a string.
const TRAVERSAL: f64 = 0.1;
/// A character of a pattern, per character of a string.
const PATTERN: f64 = 0.25;
/// A question to an authorizer: two of them in one expression.
const CHECK: u64 = 350_000;
