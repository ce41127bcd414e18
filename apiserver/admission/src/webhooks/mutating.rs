//! MutatingAdmissionWebhook: webhooks are called one after the other, by the names of their configurations, and each sees what those
//! before it have changed.

use super::Webhooks;
use super::call::{CallError, Invocation};
use super::conditions;
use crate::matching::{Candidate, Objects, Selection, patched};
use crate::{AdmissionError, Caller, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::json;
use std::sync::Arc;

const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const JSON_PATCH: &str = "JSONPatch";

/// See the module.
pub struct MutatingWebhooks(Arc<Webhooks>);

impl MutatingWebhooks {
    pub fn new(webhooks: &Arc<Webhooks>) -> Self {
        Self(Arc::clone(webhooks))
    }
}

impl std::fmt::Debug for MutatingWebhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutatingWebhooks").finish_non_exhaustive()
    }
}

#[async_trait]
impl Plugin for MutatingWebhooks {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        Operation::ALL
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        !self.0.mutating.load().is_empty() && super::may_see(request)
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(selection) = Selection::new(request, &*self.0.reader) else {
            return Ok(());
        };
        if let Some(state) = request.reinvocation {
            state.compare(Caller::Webhooks, Some(object));
        }
        let mut candidate = Candidate::new(&selection, Some(object), old);
        self.call_all(&selection, &mut candidate).await?;
        if candidate.is_patched {
            *object = candidate.finish(object).await?;
        }
        if let Some(state) = request.reinvocation {
            state.leave(Caller::Webhooks, Some(object));
        }
        Ok(())
    }

    /// A delete has no object that could be changed, and may be refused here as well.
    async fn validate(
        &self,
        request: &Request<'_>,
        _: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let selection = Selection::new(request, &*self.0.reader);
        let deletes = request.operation == Operation::Delete;
        let Some(selection) = selection.filter(|_| deletes) else {
            return Ok(());
        };
        let mut candidate = Candidate::new(&selection, None, old);
        self.call_all(&selection, &mut candidate).await
    }
}

/// Upstream's `MutationAuditAnnotation`.
#[derive(Serialize)]
struct Mutation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

impl MutatingWebhooks {
    async fn call_all(
        &self,
        selection: &Selection<'_>,
        candidate: &mut Candidate<'_>,
    ) -> Result<(), AdmissionError> {
        let state = selection.request.reinvocation;
        let is_second = state.is_some_and(crate::Reinvocation::is_second);
        let all = self.0.mutating.load_full();
        for (index, webhook) in all.iter().enumerate() {
            let Some(to) = selection
                .matching(&webhook.constraints, candidate.objects())
                .await?
            else {
                continue;
            };
            if !webhook.conditions.is_empty() {
                candidate.convert(&to).await?;
            }
            let matches = conditions::hold(webhook, selection, &to, candidate.objects(), &self.0.runtime);
            // A second pass makes no first call.
            let is_due =
                || !is_second || state.is_some_and(|state| state.is_due(Caller::Webhooks, &webhook.id));
            if !matches.await? || !is_due() {
                continue;
            }
            candidate.convert(&to).await?;
            let invocation = Invocation {
                webhook,
                to: &to,
                selection,
            };
            let place = format!("round_{}_index_{index}", u8::from(is_second));
            let held = self.0.hold(selection, candidate.objects(), 1)?;
            let begun = self.0.runtime.monotonic();
            let called = self.call(&invocation, candidate, &place).await;
            drop(held);
            let took = self.0.runtime.monotonic().saturating_sub(begun);
            selection.host.waited(true, took);
            if let (Ok(true), Some(state)) = (&called, state) {
                state.changed(Caller::Webhooks);
            }
            if let Some(state) = state.filter(|_| webhook.wants_reinvocation) {
                state.called(Caller::Webhooks, &webhook.id);
            }
            let key = || format!("failed-open.{MUTATION}{place}");
            self.0.settle(&invocation, Step::Admit, took, called.err(), key)?;
        }
        Ok(())
    }

    /// Calls one webhook and applies its patch; says whether that has changed the object.
    async fn call(
        &self,
        invocation: &Invocation<'_>,
        candidate: &mut Candidate<'_>,
        place: &str,
    ) -> Result<bool, CallError> {
        let called = self.patched(invocation, candidate.objects(), place).await;
        let host = invocation.selection.host;
        let result = called.map(|patched| {
            let Some(mut patched) = patched else { return false };
            let changed = candidate.objects().new != Some(&patched);
            host.set_defaults(&mut patched, &invocation.to.resource);
            candidate.patch(patched);
            changed
        });
        let webhook = invocation.webhook;
        let note = Mutation {
            configuration: &webhook.configuration,
            webhook: &webhook.name,
            mutated: *result.as_ref().unwrap_or(&false),
        };
        let note = serde_json::to_string(&note).unwrap_or_default();
        host.annotate(format!("{MUTATION}{place}"), note);
        result
    }

    /// The object with a webhook's patch; `None` without one.
    async fn patched(
        &self,
        invocation: &Invocation<'_>,
        objects: Objects<'_>,
        place: &str,
    ) -> Result<Option<Tree>, CallError> {
        let answer = self.0.call(invocation, objects, Step::Admit).await?;
        if answer.patch.is_empty() {
            return Ok(None);
        }
        let undecodable =
            |why: &str| CallError::calling(format!("received undecodable patch in webhook response: {why}"));
        let text = std::str::from_utf8(&answer.patch).map_err(|error| undecodable(&error.to_string()))?;
        let operations: Vec<IgnoredAny> =
            serde_json::from_str(text).map_err(|error| undecodable(&error.to_string()))?;
        if operations.is_empty() {
            return Ok(None);
        }
        let name = &invocation.webhook.name;
        let Some(object) = objects.new else {
            return Err(CallError::Internal(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        if answer.patch_type != JSON_PATCH {
            let why = format!("unsupported patch type {:?}", answer.patch_type);
            return Err(CallError::Calling { why, code: 400 });
        }
        let host = invocation.selection.host;
        let heavy = host.heavy_from(answer.patch.len() + object.arena_bytes()).await;
        heavy.map_err(CallError::Request)?;
        let patched =
            patched(object, &answer.patch).map_err(|error| CallError::Internal(error.to_string()))?;
        if host.audits_bodies() {
            let webhook = invocation.webhook;
            let (configuration, name) = (json!(webhook.configuration), json!(webhook.name));
            let note = format!(
                r#"{{"configuration":{configuration},"webhook":{name},"patch":{text},"patchType":"{JSON_PATCH}"}}"#
            );
            host.annotate(format!("{PATCH}{place}"), note);
        }
        Ok(Some(patched))
    }
}
