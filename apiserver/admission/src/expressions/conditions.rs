//! Match conditions: expressions that must all be true of a request (upstream's `matchconditions`).

use super::{Evaluated, Expression, Inputs, Unevaluated, evaluate};
use crate::AdmissionError;
use machinery_cel::MATCH_CONDITIONS_BUDGET;

/// The conditions' word about a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// None is false, and these have no value.
    Failed(String),
}

/// Evaluates conditions, and says what they cost. One that is false decides, whatever the others come to.
///
/// # Errors
/// The request ends.
pub(crate) async fn matched(
    conditions: &[Expression],
    inputs: &Inputs<'_>,
) -> Result<(Matched, u64), AdmissionError> {
    let all: Vec<_> = conditions.iter().map(Some).collect();
    let done = evaluate(&all, inputs, MATCH_CONDITIONS_BUDGET, |value| {
        Ok(value.as_bool() != Some(false))
    });
    match done.await {
        Ok(done) => Ok((decided(done.values), MATCH_CONDITIONS_BUDGET - done.left)),
        Err(Unevaluated::OutOfBudget(why)) => Ok((Matched::Failed(why), MATCH_CONDITIONS_BUDGET)),
        Err(Unevaluated::Request(error)) => Err(error),
    }
}

fn decided(values: Vec<Option<Evaluated<bool>>>) -> Matched {
    let mut failed = Vec::new();
    for value in values.into_iter().flatten() {
        match value.result {
            Ok(true) => {}
            Ok(false) => return Matched::No,
            // Go's aggregates of errors name each once.
            Err(why) if failed.contains(&why) => {}
            Err(why) => failed.push(why),
        }
    }
    match failed.as_slice() {
        [] => Matched::Yes,
        [one] => Matched::Failed(one.clone()),
        several => Matched::Failed(format!("[{}]", several.join(", "))),
    }
}
