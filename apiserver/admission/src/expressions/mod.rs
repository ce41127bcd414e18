//! Expressions about a request: match conditions of webhooks, and all that policies say.
//!
//! An [`Expression`] is compiled once, with its configuration. [`evaluate`] evaluates several on one request within one budget, as upstream's
//! `ForInput` does: variables of the policy are evaluated when an expression asks for them, once, and cost what they cost ([`session`]). An
//! authorizer answers an expression at once; where ours cannot, the question is noted, answered, and the expressions evaluated again
//! ([`questions`]).

mod conditions;
mod questions;
mod session;

#[cfg(test)]
mod tests;

pub(crate) use conditions::{Matched, matched};

use crate::matching::{Objects, Selection};
use machinery_cel::{Env, EvalError, Limits, Program, Type, Value};
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use questions::Answers;
use serde_json::Value as Json;
use session::{Session, View};
use std::collections::HashMap;
use std::time::Duration;

/// Upstream's words about a request whose expressions cost too much.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// An expression, or the reason for which it cannot be used.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    program: Result<Program, String>,
}

impl Expression {
    /// Compiles an expression whose value has one of these types (any without them), and says which.
    pub(crate) fn compile(env: &Env, text: &str, types: &[Type]) -> (Self, Option<Type>) {
        let (program, ty) = match env.compile_as(text, types) {
            Ok((program, ty)) => (Ok(program), Some(ty)),
            Err(problem) => (Err(problem.to_string()), None),
        };
        let text = text.to_owned();
        (Self { text, program }, ty)
    }

    /// The reason for which it cannot be used.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }
}

/// The variables of a policy, in the order in which they are declared.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    list: Vec<Expression>,
    places: HashMap<String, usize>,
}

impl Variables {
    /// Adds a variable; the last one of a name counts.
    pub(crate) fn push(&mut self, name: &str, expression: Expression) {
        self.places.insert(name.to_owned(), self.list.len());
        self.list.push(expression);
    }
}

/// The request, objects and variables that expressions are evaluated on.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) selection: &'a Selection<'a>,
    pub(crate) objects: Objects<'a>,
    /// See [`request::json`](crate::matching::request::json).
    pub(crate) request: &'a Json,
    pub(crate) namespace: Option<&'a Json>,
    pub(crate) params: Option<&'a Tree>,
    pub(crate) variables: Option<&'a Variables>,
    /// The clock that evaluations are measured by.
    pub(crate) runtime: Option<&'a Runtime>,
}

impl Inputs<'_> {
    fn now(&self) -> Duration {
        self.runtime.map(Runtime::monotonic).unwrap_or_default()
    }
}

/// An outcome of one expression: its value as the caller wants it, or the reason why it has none.
#[derive(Debug)]
pub(crate) struct Evaluated<T> {
    pub(crate) result: Result<T, String>,
    pub(crate) took: Duration,
}

/// Outcomes of several expressions, and what is left of their budget.
#[derive(Debug)]
pub(crate) struct Done<T> {
    /// `None` where there is no expression.
    pub(crate) values: Vec<Option<Evaluated<T>>>,
    pub(crate) left: u64,
}

/// Evaluates expressions within a budget; `take` makes of each value what is wanted of it.
///
/// # Errors
/// The budget is used up.
pub(crate) async fn evaluate<T>(
    expressions: &[Option<&Expression>],
    inputs: &Inputs<'_>,
    budget: u64,
    take: impl Fn(&Value<'_>) -> Result<T, String> + Sync,
) -> Result<Done<T>, String> {
    let mut answers = Answers::new(inputs.selection.host);
    loop {
        let done = run(expressions, inputs, &answers, budget, &take);
        match answers.open_question() {
            None => return done,
            Some(question) => answers.ask(question).await,
        }
    }
}

fn run<T>(
    expressions: &[Option<&Expression>],
    inputs: &Inputs<'_>,
    answers: &Answers<'_>,
    budget: u64,
    take: &impl Fn(&Value<'_>) -> Result<T, String>,
) -> Result<Done<T>, String> {
    let session = Session::new(inputs, answers, budget);
    let view = session.view();
    let (mut left, mut values) = (budget, Vec::with_capacity(expressions.len()));
    for expression in expressions {
        let Some(expression) = expression else {
            values.push(None);
            continue;
        };
        let begun = inputs.now();
        let (result, cost) = value(expression, view, answers, take);
        let cost = cost.saturating_add(session.take_spent());
        left = left.checked_sub(cost).ok_or(OUT_OF_BUDGET)?;
        let took = inputs.now().saturating_sub(begun);
        values.push(Some(Evaluated { result, took }));
    }
    Ok(Done { values, left })
}

/// Evaluates one expression; the cost is that of itself, without the variables.
fn value<'a, T>(
    expression: &'a Expression,
    view: &'a View<'a>,
    answers: &Answers<'_>,
    take: &impl Fn(&Value<'_>) -> Result<T, String>,
) -> (Result<T, String>, u64) {
    let program = match &expression.program {
        Ok(program) => program,
        Err(why) => return (Err(format!("compilation error: {why}")), 0),
    };
    let limits = Limits {
        interrupt: Some(answers.interrupt()),
        ..Limits::default()
    };
    let done = program.evaluate(view, &limits);
    let failed = |error: EvalError| format!("expression '{}' resulted in error: {error}", expression.text);
    let result = done.value.map_err(failed).and_then(|value| take(&value));
    (result, done.cost)
}
