//! One call: its time limit, its answer, and the ways in which it can fail.

use super::Webhooks;
use super::answer::{self, Answer, BadAnswer};
use super::configuration::Webhook;
use super::observer::WebhookCall;
use super::review;
use crate::host::{Equivalent, Held};
use crate::matching::{Objects, Selection};
use crate::rejection::{Rejection, cut};
use crate::{AdmissionError, Step};
use apiserver_egress::{HookCall, HookError, HookPlace, HookTarget};
use machinery_meta::{go_duration, syntax};
use machinery_schema::Tree;
use std::time::Duration;

/// The kind of the reviews that are sent.
const REVIEW: &str = "AdmissionReview";

/// Bytes of an answer: a patch in base64 of the largest object, and some more.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The code of a call that came to no answer.
const UNAVAILABLE: u16 = 503;

/// The end of a call that does not let the request through.
#[derive(Debug)]
pub(super) enum CallError {
    /// The webhook was not called, or its answer is none: the failure policy decides.
    Calling {
        why: String,
        code: u16,
    },
    /// The webhook refused the request.
    Rejected(Box<Rejection>),
    /// The request ends, whatever the failure policy says: its time was over before the webhook had a place for it, or there is
    /// no turn for its work.
    Request(AdmissionError),
    /// The server cannot do what the webhook requests.
    Internal(String),
    BadRequest(String),
}

impl CallError {
    pub(super) fn calling(why: String) -> Self {
        let code = UNAVAILABLE;
        Self::Calling { why, code }
    }
}

/// A webhook that is called for a request.
pub(super) struct Invocation<'a> {
    pub(super) webhook: &'a Webhook,
    pub(super) to: &'a Equivalent,
    pub(super) selection: &'a Selection<'a>,
}

/// Bytes of a request's objects in memory.
fn bytes(objects: Objects<'_>) -> usize {
    let both = [objects.new, objects.old].into_iter().flatten();
    both.map(Tree::arena_bytes).sum()
}

impl Webhooks {
    /// Counts the memory that a request holds while so many webhooks are called at once: its objects, and a review of them for
    /// each.
    pub(super) fn hold(
        &self,
        selection: &Selection<'_>,
        objects: Objects<'_>,
        calls: usize,
    ) -> Result<Held, AdmissionError> {
        let held = selection.host.hold(bytes(objects).saturating_mul(1 + calls));
        held.inspect_err(|_| self.turned_away.note(REVIEW))
    }

    /// Calls a webhook with these objects. Warnings and annotations of its answer are passed on.
    pub(super) async fn call(
        &self,
        invocation: &Invocation<'_>,
        objects: Objects<'_>,
        step: Step,
    ) -> Result<Answer, CallError> {
        let Invocation {
            webhook,
            to,
            selection,
        } = *invocation;
        if selection.request.dry_run && !webhook.has_no_side_effects {
            return Err(CallError::BadRequest(format!(
                "admission webhook {:?} does not support dry run",
                webhook.name
            )));
        }
        let Some(version) = webhook.review else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(CallError::Calling {
                why: why.to_owned(),
                code: 400,
            });
        };
        let target = webhook.target.as_ref().map_err(|error| CallError::Calling {
            why: format!("could not get REST client: {error}"),
            code: 500,
        })?;
        let uid = self.runtime.uuid().to_string();
        let place = self.place(target, selection, objects).await?;
        let limit = limit(webhook.timeout, selection.host.time_left());
        let query = limit.map(query).unwrap_or_default();
        let call = HookCall {
            target,
            place,
            query: &query,
            body: review::json(version, &uid, selection, to, objects).into(),
            limit: MAX_ANSWER_BYTES,
        };
        let body = match limit {
            None => self.client.post(call).await,
            Some(limit) => {
                let url = target.url(&query);
                let posted = self.runtime.timeout(limit, self.client.post(call)).await;
                posted.unwrap_or_else(|_| {
                    Err(HookError::Failed {
                        url,
                        why: "context deadline exceeded".to_owned(),
                    })
                })
            }
        };
        let body = body.map_err(|error| {
            let code = match &error {
                HookError::Answered { code, .. } => *code,
                HookError::Failed { .. } => UNAVAILABLE,
            };
            CallError::Calling {
                why: format!("failed to call webhook: {error}"),
                code,
            }
        })?;
        let answer = answer::read(&body, version, &uid, step == Step::Admit).map_err(|bad| {
            CallError::calling(match bad {
                BadAnswer::Unreadable(why) => format!("failed to call webhook: {why}"),
                BadAnswer::Invalid(why) => format!("received invalid webhook response: {why}"),
            })
        })?;
        self.pass_on(invocation, &answer);
        match answer.allowed {
            true => Ok(answer),
            false => Err(CallError::Rejected(Box::new(Rejection::by(
                &webhook.name,
                answer.status,
            )))),
        }
    }

    /// Hands on what an answer says besides yes or no.
    fn pass_on(&self, invocation: &Invocation<'_>, answer: &Answer) {
        let (webhook, host) = (invocation.webhook, invocation.selection.host);
        for (key, value) in &answer.annotations {
            let key = format!("{}/{key}", webhook.name);
            if syntax::qualified_name(&key).is_empty() {
                host.annotate(key, value.clone());
            } else if let Some(left_out) = webhook.log.should_log(self.runtime.monotonic()) {
                tracing::warn!(webhook = webhook.name, left_out, "an audit annotation has no key");
            }
        }
        for warning in &answer.warnings {
            host.warn(warning.clone());
        }
    }

    /// Waits for the call's places: for as long as the request may take, since others are in the way and not the webhook, whose
    /// own timeout and failure policy are for itself.
    async fn place<'a>(
        &self,
        target: &'a HookTarget,
        selection: &'a Selection<'_>,
        objects: Objects<'_>,
    ) -> Result<HookPlace<'a>, CallError> {
        let entered = target.enter(selection.namespace(), bytes(objects));
        match selection.host.time_left() {
            None => Ok(entered.await),
            Some(left) => self.runtime.timeout(left, entered).await.map_err(|_| {
                self.turned_away.note(REVIEW);
                CallError::Request(too_late())
            }),
        }
    }

    /// Counts the end of a call, and applies the failure policy.
    pub(super) fn settle(
        &self,
        invocation: &Invocation<'_>,
        step: Step,
        took: Duration,
        failed: Option<CallError>,
        failed_open: impl FnOnce() -> String,
    ) -> Result<(), AdmissionError> {
        let Invocation {
            webhook, selection, ..
        } = *invocation;
        let counted = WebhookCall {
            webhook: &webhook.name,
            step,
            operation: selection.request.operation,
        };
        let refuse = |error_type, code, error| {
            self.observer.rejected(counted, error_type, code);
            self.observer.called(counted, took, true, code);
            Err(error)
        };
        match failed {
            None => {
                self.observer.called(counted, took, false, 200);
                Ok(())
            }
            Some(CallError::Calling { why, code }) => {
                // It may quote the answer.
                let why = cut(format!("failed calling webhook {:?}: {why}", webhook.name));
                if let Some(left_out) = webhook.log.should_log(self.runtime.monotonic()) {
                    let failing = if webhook.ignores_failure { "open" } else { "closed" };
                    tracing::warn!(webhook = webhook.name, %why, left_out, failing, "failed calling a webhook");
                }
                if !webhook.ignores_failure {
                    return refuse("calling_webhook_error", code, AdmissionError::Internal(why));
                }
                self.observer.called(counted, took, false, code);
                self.observer.failed_open(counted);
                selection.host.annotate(failed_open(), webhook.name.clone());
                in_time(selection)
            }
            Some(CallError::Rejected(rejection)) => {
                let code = rejection.code;
                refuse("no_error", code, AdmissionError::Rejected(rejection))
            }
            Some(CallError::Request(error)) => refuse("apiserver_internal_error", 0, error),
            Some(CallError::Internal(why)) => {
                refuse("apiserver_internal_error", 0, AdmissionError::Internal(why))
            }
            Some(CallError::BadRequest(why)) => {
                refuse("apiserver_internal_error", 0, AdmissionError::BadRequest(why))
            }
        }
    }
}

/// Refuses a request whose own time is over: there is no point in going on.
pub(super) fn in_time(selection: &Selection<'_>) -> Result<(), AdmissionError> {
    match selection.host.time_left() {
        Some(Duration::ZERO) => Err(too_late()),
        _ => Ok(()),
    }
}

fn too_late() -> AdmissionError {
    AdmissionError::Timeout("request did not complete within requested timeout".to_owned())
}

/// The time that a call may take.
fn limit(own: Option<Duration>, left: Option<Duration>) -> Option<Duration> {
    match (own, left) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (own, left) => own.or(left),
    }
}

/// The time limit as a webhook gets it: whole seconds, as Go writes durations.
fn query(limit: Duration) -> String {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    format!("timeout={}", go_duration::write(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_is_told_the_lesser_limit_in_whole_seconds() {
        let of = |own: Option<u64>, left: Option<u64>| {
            limit(own.map(Duration::from_millis), left.map(Duration::from_millis)).map(query)
        };
        assert_eq!(of(Some(10_000), None).as_deref(), Some("timeout=10s"));
        assert_eq!(of(Some(10_000), Some(1_001)).as_deref(), Some("timeout=2s"));
        assert_eq!(of(None, Some(61_000)).as_deref(), Some("timeout=1m1s"));
        assert_eq!(of(None, None), None);
    }
}
