//! Kubernetes' dialect of CEL: what rules of custom kinds, admission policies and match conditions are written in.
//!
//! ```text
//! text ── parser ──> tree ── check ──> types ──┬─ cost ──> range of costs, from declared sizes
//!          macros            overloads         └─ eval::plan ──> Program ── evaluate ──> Value, cost
//! ```
//!
//! An [`Env`] declares variables and types, [`Env::compile`] reads and checks an expression, [`Compiled::program`] makes
//! what is evaluated, once for many evaluations. Values are read where they are: a [`Data`] is a cursor into an object's
//! tree, and nothing of the object is copied. [`Declared`] has the types that a structural schema declares.
//!
//! Texts of problems, estimates and costs are upstream's (cel-go 0.29 with Kubernetes 1.37's libraries); the data
//! in `testdata/` was recorded from it. Expressions are hostile: the parser bounds size and depth, the checker the
//! size of types, and an evaluation ends at its cost, its memory and its work.
//!
//! The crate knows no API server: what an authorizer decides comes through [`Authorizer`].

mod admission;
mod ast;
mod check;
mod cost;
mod declarations;
mod declared;
mod devices;
mod env;
mod escaping;
mod eval;
#[cfg(test)]
mod fuzz;
mod library;
mod parser;
mod program;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use admission::{AdmissionVariables, Composition, MATCH_CONDITIONS_BUDGET, admission_env};
pub use cost::{CostEstimate, NoSizes, Sizes};
pub use declared::{Declared, MAX_REQUEST};
pub use devices::{DEVICE_SELECTOR_MAX_COST, DeviceAttribute, DeviceMatch, DeviceSelector, DeviceValue};
pub use env::{Env, ObjectTypes, Provider};
pub use escaping::{escape, is_reserved, unescape};
pub use eval::{
    Activation, Interrupt, Limits, MAX_MEMORY, MAX_WORK_OF_OBJECT, PER_CALL_LIMIT, RUNTIME_BUDGET, Variables,
};
pub use parser::MAX_EXPRESSION;
pub use program::{Compiled, Evaluation, ExpressionProblem, Program};
pub use rules::{Rules, Verdict};
pub use source::{Issue, Issues, Location};
pub use types::{Type, UnknownType};
pub use value::{
    Authorizer, Check, Data, Decision, Entries, ErrorKind, EvalError, Evaluated, Fields, Foreign, List, Map,
    NoJson, Object, Opaque, Subject, Text, Timestamp, Value,
};
