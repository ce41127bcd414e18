//! Match conditions: expressions that must all be true of a request (upstream's `matchconditions`).

use super::{Expression, Inputs, evaluate};
use machinery_cel::MATCH_CONDITIONS_BUDGET;

/// The conditions' word about a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// None is false, and these have no value.
    Failed(String),
}

/// Evaluates conditions. One that is false decides, whatever the others come to.
pub(crate) async fn matched(conditions: &[Expression], inputs: &Inputs<'_>) -> Matched {
    let all: Vec<_> = conditions.iter().map(Some).collect();
    let done = evaluate(&all, inputs, MATCH_CONDITIONS_BUDGET, |value| {
        Ok(value.as_bool() != Some(false))
    });
    let values = match done.await {
        Ok(done) => done.values.into_iter().flatten(),
        Err(why) => return Matched::Failed(why),
    };
    let mut failed = Vec::new();
    for value in values {
        match value.result {
            Ok(true) => {}
            Ok(false) => return Matched::No,
            Err(why) => failed.push(why),
        }
    }
    match failed.as_slice() {
        [] => Matched::Yes,
        [one] => Matched::Failed(one.clone()),
        several => Matched::Failed(format!("[{}]", several.join(", "))),
    }
}
