//! Expressions about a request: match conditions of webhooks, and all that policies say.
//!
//! An [`Expression`] is compiled once, with its configuration. [`evaluate`] evaluates several on one request within one budget, as upstream's
//! `ForInput` does: variables of the policy are evaluated when an expression requests them, once, and cost what they cost ([`session`]). An
//! authorizer answers an expression at once; where ours cannot, the question is noted, answered, and the expressions evaluated again
//! ([`questions`]).

mod conditions;
mod questions;
mod session;

#[cfg(test)]
mod tests;

pub(crate) use conditions::{Matched, matched};

use crate::AdmissionError;
use crate::matching::{Objects, Selection};
use machinery_cel::{Env, EvalError, Limits, MAX_WORK_OF_OBJECT, Program, Type, Value};
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use questions::Answers;
use serde_json::Value as Json;
use session::{Session, View};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upstream's words about a request whose expressions cost too much.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The same of expressions that take too many steps.
const TOO_MANY_STEPS: &str =
    "validation failed due to too many steps of expressions, no further validation rules will be run";
/// The same of a request whose expressions take too many together.
const TOO_MANY_STEPS_OF_ALL: &str =
    "expressions of the webhooks and policies that apply to the request take more steps than one request may";
/// Steps of all expressions of a request: one policy that takes too many by itself leaves some to the others.
const MAX_WORK_OF_REQUEST: u64 = 2 * MAX_WORK_OF_OBJECT;

/// The reason for which expressions have no values.
#[derive(Debug)]
pub(crate) enum Unevaluated {
    /// Their budget is used up, or they take too many steps by themselves: the failure policy decides.
    OutOfBudget(String),
    /// The request ends, whatever failure policies say: it is no failure of the policy or webhook at hand.
    Request(AdmissionError),
}

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
    /// Steps of the policy or webhook at hand so far, for all of the request.
    pub(crate) work: &'a AtomicU64,
}

impl Inputs<'_> {
    /// Bytes of the objects and parameters, in proportion to which evaluations take time.
    pub(crate) fn bytes(&self) -> usize {
        let objects = [self.objects.new, self.objects.old, self.params]
            .into_iter()
            .flatten();
        objects.map(Tree::arena_bytes).sum()
    }

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
/// See [`Unevaluated`].
pub(crate) async fn evaluate<T>(
    expressions: &[Option<&Expression>],
    inputs: &Inputs<'_>,
    budget: u64,
    take: impl Fn(&Value<'_>) -> Result<T, String> + Sync,
) -> Result<Done<T>, Unevaluated> {
    let mut answers = Answers::new(inputs.selection.host);
    let mut steps = Steps::new(inputs)?;
    loop {
        steps.again = 0;
        let done = run(expressions, inputs, (&answers, &mut steps), budget, &take);
        if let Some(error) = answers.undecided() {
            return Err(Unevaluated::Request(error));
        }
        match answers.open_question() {
            None => return done,
            Some(question) => answers.ask(question).await.map_err(Unevaluated::Request)?,
        }
    }
}

fn run<T>(
    expressions: &[Option<&Expression>],
    inputs: &Inputs<'_>,
    (answers, steps): (&Answers<'_>, &mut Steps<'_>),
    budget: u64,
    take: &impl Fn(&Value<'_>) -> Result<T, String>,
) -> Result<Done<T>, Unevaluated> {
    let session = Session::new(inputs, answers, budget);
    let view = session.view();
    let (mut left, mut values) = (budget, Vec::with_capacity(expressions.len()));
    for expression in expressions {
        let Some(expression) = expression else {
            values.push(None);
            continue;
        };
        let begun = inputs.now();
        let (result, used) = value(expression, view, answers, take);
        let cost = used.cost.saturating_add(session.take_spent());
        let spent = left.checked_sub(cost);
        left = spent.ok_or_else(|| Unevaluated::OutOfBudget(OUT_OF_BUDGET.to_owned()))?;
        steps.add(used.work.saturating_add(session.take_worked()))?;
        let took = inputs.now().saturating_sub(begun);
        values.push(Some(Evaluated { result, took }));
    }
    Ok(Done { values, left })
}

/// Steps of expressions that are evaluated together. Those that are taken again, since a question has its answer now, count
/// once: how many answers the authorizer has at once is no matter of the request.
struct Steps<'a> {
    selection: &'a Selection<'a>,
    /// See [`Inputs::work`].
    own: &'a AtomicU64,
    /// Of this time.
    again: u64,
    /// Counted already.
    counted: u64,
}

impl<'a> Steps<'a> {
    /// Nothing more is evaluated of a policy that has taken too many.
    fn new(inputs: &Inputs<'a>) -> Result<Self, Unevaluated> {
        let steps = Self {
            selection: inputs.selection,
            own: inputs.work,
            again: 0,
            counted: 0,
        };
        steps.check(inputs.work.load(Ordering::Relaxed))?;
        Ok(steps)
    }

    fn add(&mut self, steps: u64) -> Result<(), Unevaluated> {
        self.again = self.again.saturating_add(steps);
        let more = self.again.saturating_sub(self.counted);
        self.counted += more;
        let own = self.own.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if self.selection.work(more) > MAX_WORK_OF_REQUEST {
            let error = AdmissionError::Forbidden(TOO_MANY_STEPS_OF_ALL.to_owned());
            return Err(Unevaluated::Request(error));
        }
        self.check(own)
    }

    fn check(&self, own: u64) -> Result<(), Unevaluated> {
        match own > MAX_WORK_OF_OBJECT {
            true => Err(Unevaluated::OutOfBudget(TOO_MANY_STEPS.to_owned())),
            false => Ok(()),
        }
    }
}

/// Cost of an expression, and steps that costs do not count.
#[derive(Default)]
struct Used {
    cost: u64,
    work: u64,
}

/// Evaluates one expression; what it used is its own, without the variables.
fn value<'a, T>(
    expression: &'a Expression,
    view: &'a View<'a>,
    answers: &Answers<'_>,
    take: &impl Fn(&Value<'_>) -> Result<T, String>,
) -> (Result<T, String>, Used) {
    let program = match &expression.program {
        Ok(program) => program,
        Err(why) => return (Err(format!("compilation error: {why}")), Used::default()),
    };
    let limits = Limits {
        interrupt: Some(answers.interrupt()),
        ..Limits::default()
    };
    let done = program.evaluate(view, &limits);
    let failed = |error: EvalError| format!("expression '{}' resulted in error: {error}", expression.text);
    let result = done.value.map_err(failed).and_then(|value| take(&value));
    let used = Used {
        cost: done.cost,
        work: done.work,
    };
    (result, used)
}
