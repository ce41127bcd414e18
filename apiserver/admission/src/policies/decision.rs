//! Decisions of a validating policy about one request with one parameter (upstream's `validator`).

use super::definition::{Check, ValidatingPolicy};
use super::observer::ErrorType;
use crate::AdmissionError;
use crate::expressions::{Done, Evaluated, Expression, Inputs, Matched, Unevaluated, evaluate, matched};
use crate::matching::request;
use crate::rejection::cut;
use machinery_cel::{RUNTIME_BUDGET, Value};
use std::time::Duration;

/// Bytes of a message that an expression made.
const MAX_MESSAGE: usize = 5 * 1024;

/// Outcome of a validation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admit,
    /// It has no value, and the policy lets the request pass.
    Ignored,
    Deny,
    /// It has no value, and the policy does not let the request pass.
    Failed,
}

/// A validation's decision.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    pub(super) message: String,
    /// Of a `Status`; empty for an error.
    pub(super) reason: String,
    pub(super) took: Duration,
}

impl Decision {
    /// The kind of its error, for metrics.
    pub(super) fn error_type(&self) -> ErrorType {
        match self.verdict {
            Verdict::Admit => ErrorType::None,
            // Upstream counts a validation that is not true as an error, too.
            _ => ErrorType::of(&self.message),
        }
    }
}

/// Outcome of one audit annotation.
#[derive(Debug)]
pub(super) enum Published {
    Value { key: String, value: String },
    Nothing,
    Failed { why: String, took: Duration },
}

/// Decisions of all validations, and audit annotations.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub(super) decisions: Vec<Decision>,
    pub(super) annotations: Vec<Published>,
    pub(super) cost: u64,
}

/// The text of a value, where it is one.
fn text(value: &Value<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

impl ValidatingPolicy {
    /// Decides about a request with one parameter.
    ///
    /// # Errors
    /// The request ends.
    pub(super) async fn decide(&self, inputs: &Inputs<'_>) -> Result<Decisions, AdmissionError> {
        match self.decided(inputs).await {
            Ok(decisions) => Ok(decisions),
            Err((Unevaluated::OutOfBudget(why), cost)) => Ok(Decisions {
                decisions: vec![self.failed(why, Duration::ZERO)],
                cost,
                ..Decisions::default()
            }),
            Err((Unevaluated::Request(error), _)) => Err(error),
        }
    }

    async fn decided(&self, inputs: &Inputs<'_>) -> Result<Decisions, (Unevaluated, u64)> {
        let mut cost = 0;
        if !self.policy.conditions.is_empty() {
            // Conditions see no namespace, as upstream's.
            let request = request::of_conditions(inputs.request.clone());
            let unplaced = Inputs {
                namespace: None,
                request: &request,
                ..*inputs
            };
            let matched = matched(&self.policy.conditions, &unplaced).await;
            let (matched, of_conditions) = matched.map_err(|error| (Unevaluated::Request(error), 0))?;
            cost += of_conditions;
            let nothing = Decisions {
                cost,
                ..Decisions::default()
            };
            match matched {
                Matched::Yes => {}
                Matched::No => return Ok(nothing),
                Matched::Failed(_) if self.policy.ignores_failure => return Ok(nothing),
                Matched::Failed(why) => return Err((Unevaluated::OutOfBudget(why), cost)),
            }
        }
        let checks: Vec<_> = self.checks.iter().map(|own| Some(&own.expression)).collect();
        let is_true = |value: &Value<'_>| Ok(value.as_bool() == Some(true));
        let out = |why| (why, RUNTIME_BUDGET);
        let done = evaluate(&checks, inputs, RUNTIME_BUDGET, is_true)
            .await
            .map_err(out)?;
        cost += RUNTIME_BUDGET - done.left;
        let decisions = self.judged(done, inputs).await.map_err(out)?;
        let annotations = self.annotated(inputs).await.map_err(out)?;
        Ok(Decisions {
            decisions,
            cost: cost + RUNTIME_BUDGET - annotations.left,
            annotations: annotations.published,
        })
    }

    /// Decisions by the values of the validations.
    async fn judged(&self, done: Done<bool>, inputs: &Inputs<'_>) -> Result<Vec<Decision>, Unevaluated> {
        let values: Vec<Evaluated<bool>> = done.values.into_iter().flatten().collect();
        // Messages are made for what fails.
        let wanted = |(check, value): (&'_ Check, &Evaluated<bool>)| {
            value.result == Ok(false) && check.message_expression.is_some()
        };
        let wanted: Vec<bool> = self.checks.iter().zip(&values).map(wanted).collect();
        let expressions: Vec<Option<&Expression>> = self
            .checks
            .iter()
            .zip(&wanted)
            .map(|(check, wanted)| check.message_expression.as_ref().filter(|_| *wanted))
            .collect();
        let messages = match wanted.contains(&true) {
            true => evaluate(&expressions, inputs, done.left, |value| Ok(text(value))).await,
            false => Ok(Done {
                values: Vec::new(),
                left: done.left,
            }),
        };
        let mut messages = match messages {
            Ok(done) => Ok(done.values),
            Err(Unevaluated::OutOfBudget(why)) => Err(why),
            Err(ends) => return Err(ends),
        };
        let decide =
            |(at, (check, value)): (usize, (&Check, Evaluated<bool>))| match (value.result, &mut messages) {
                (Err(why), _) => self.failed(why, value.took),
                (Ok(_), Err(why)) => self.failed(format!("failed messageExpression: {why}"), value.took),
                (Ok(true), _) => Decision {
                    verdict: Verdict::Admit,
                    message: String::new(),
                    reason: String::new(),
                    took: value.took,
                },
                (Ok(false), Ok(messages)) => {
                    let made = messages.get_mut(at).and_then(Option::take);
                    let made = made.and_then(|own| own.result.ok()).flatten();
                    Decision {
                        verdict: Verdict::Deny,
                        message: cut(message(check, made)),
                        reason: check.reason.clone(),
                        took: value.took,
                    }
                }
            };
        Ok(self.checks.iter().zip(values).enumerate().map(decide).collect())
    }

    fn failed(&self, why: String, took: Duration) -> Decision {
        Decision {
            verdict: match self.policy.ignores_failure {
                true => Verdict::Ignored,
                false => Verdict::Failed,
            },
            message: cut(why),
            reason: String::new(),
            took,
        }
    }

    async fn annotated(&self, inputs: &Inputs<'_>) -> Result<Annotated, Unevaluated> {
        let expressions: Vec<_> = self.annotations.iter().map(|own| Some(&own.value)).collect();
        let take = |value: &Value<'_>| match value {
            Value::Null => Ok(None),
            Value::String(own) => Ok(Some(own.as_str().trim().to_owned())),
            other => Err(other.ty().value_text()),
        };
        let done = evaluate(&expressions, inputs, RUNTIME_BUDGET, take).await?;
        let each = self.annotations.iter().zip(done.values.into_iter().flatten());
        let published = each.map(|(own, value)| match value.result {
            Ok(Some(text)) if !text.is_empty() => Published::Value {
                key: own.key.clone(),
                value: text,
            },
            Ok(_) => Published::Nothing,
            Err(_) if self.policy.ignores_failure => Published::Nothing,
            Err(why) => Published::Failed {
                why: cut(why),
                took: value.took,
            },
        });
        Ok(Annotated {
            published: published.collect(),
            left: done.left,
        })
    }
}

struct Annotated {
    published: Vec<Published>,
    left: u64,
}

/// The words about a validation that failed: what its expression makes, its own ones, or the expression itself.
fn message(check: &Check, made: Option<String>) -> String {
    let made = made.map(|own| own.trim().to_owned()).unwrap_or_default();
    let is_usable = !made.is_empty() && made.len() <= MAX_MESSAGE && !made.contains('\n');
    match (is_usable, check.message.trim()) {
        (true, _) => made,
        (false, "") => format!("failed expression: {}", check.expression.text.trim()),
        (false, own) => own.to_owned(),
    }
}
