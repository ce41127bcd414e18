//! ValidatingAdmissionPolicy: what policies say of a request is denied, warned of or noted for the audit log, as their bindings say.

use super::annotations::{Collected, Failures};
use super::decision::{Decision, Decisions, Published, Verdict};
use super::definition::{Action, Binding, Policy, ValidatingPolicy};
use super::denial::Denial;
use super::invocation::{ConfigError, Spending, Version, matching, version};
use super::observer::PolicyRun;
use super::{Hook, Policies};
use crate::expressions::Inputs;
use crate::matching::{Objects, Selection};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use serde_json::Value as Json;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// See the module.
#[derive(Debug)]
pub struct ValidatingPolicies(Arc<Policies>);

impl ValidatingPolicies {
    pub fn new(policies: &Arc<Policies>) -> Self {
        Self(Arc::clone(policies))
    }
}

#[async_trait]
impl Plugin for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        Operation::ALL
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        !self.0.validating.load().is_empty() && super::may_see(request)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(selection) = Selection::new(request, &*self.0.reader) else {
            return Ok(());
        };
        let hooks = self.0.validating.load_full();
        let mut dispatch = Dispatch {
            policies: &self.0,
            selection: &selection,
            objects: Objects { new: object, old },
            versions: Vec::new(),
            spending: Spending::new(),
            refused: None,
            failures: Failures::default(),
        };
        for hook in hooks.iter() {
            dispatch.hook(hook).await?;
        }
        dispatch.failures.publish(selection.host);
        match dispatch.refused {
            None => Ok(()),
            Some(denial) => Err(AdmissionError::Denied(Box::new(denial))),
        }
    }
}

/// One request at all policies.
struct Dispatch<'a> {
    policies: &'a Policies,
    selection: &'a Selection<'a>,
    objects: Objects<'a>,
    versions: Vec<Version>,
    spending: Spending,
    /// The first refusal, which the answer has.
    refused: Option<Denial>,
    failures: Failures,
}

impl Dispatch<'_> {
    async fn hook(&mut self, hook: &Hook<ValidatingPolicy>) -> Result<(), AdmissionError> {
        let policy = &hook.policy.policy;
        let to = match matching(policy, self.selection, self.objects).await {
            Ok(None) => return Ok(()),
            Ok(Some(to)) => to,
            Err(skipped) => return skipped.noted(|error| self.config_error(error)),
        };
        let namespaced = match self.policies.scope(policy) {
            Ok(namespaced) => namespaced,
            Err(skipped) => return skipped.noted(|error| self.config_error(error)),
        };
        let (mut collected, work) = (Collected::default(), AtomicU64::new(0));
        for binding in &hook.bindings {
            let found = self
                .policies
                .params(policy, binding, namespaced, self.selection, self.objects);
            let params = match found.await {
                Ok(params) if params.is_empty() => continue,
                Ok(params) => params,
                Err(skipped) => {
                    skipped.noted(|error| self.config_error(error))?;
                    continue;
                }
            };
            let at = match self.version(&to).await {
                Ok(at) => at,
                Err(error) if error.is_of_request() => return Err(error),
                Err(error) => {
                    let why = format!("failed to convert object version: {error}");
                    self.config_error(&ConfigError {
                        policy,
                        binding: Some(binding),
                        why,
                    });
                    continue;
                }
            };
            let namespace = self.policies.namespace_object(self.selection).await?;
            for params in &params {
                let decided = self
                    .decided(&hook.policy, at, params.as_ref(), namespace.as_ref(), &work)
                    .await?;
                self.spending.spend(decided.cost);
                self.apply(policy, binding, decided, &mut collected);
            }
        }
        collected.publish(&policy.name, self.selection.host);
        Ok(())
    }

    async fn version(&mut self, to: &crate::Equivalent) -> Result<usize, AdmissionError> {
        if let Some(at) = self.versions.iter().position(|own| own.to == *to) {
            return Ok(at);
        }
        let made = version(self.selection, self.objects, to).await?;
        self.versions.push(made);
        Ok(self.versions.len() - 1)
    }

    async fn decided(
        &self,
        policy: &ValidatingPolicy,
        at: usize,
        params: Option<&Tree>,
        namespace: Option<&Json>,
        work: &AtomicU64,
    ) -> Result<Decisions, AdmissionError> {
        let version = &self.versions[at];
        let inputs = Inputs {
            selection: self.selection,
            objects: version.objects(self.objects),
            request: &version.request,
            namespace,
            params,
            variables: Some(&policy.policy.variables),
            runtime: Some(&self.policies.runtime),
            work,
        };
        self.spending.next(&inputs).await?;
        policy.decide(&inputs).await
    }

    fn apply(&mut self, policy: &Policy, binding: &Binding, decided: Decisions, collected: &mut Collected) {
        for (index, decision) in decided.decisions.iter().enumerate() {
            match decision.verdict {
                Verdict::Admit => {}
                Verdict::Ignored => self.observe(policy, binding, decision, "allow"),
                Verdict::Deny | Verdict::Failed => self.act(policy, binding, index, decision),
            }
        }
        for annotation in decided.annotations {
            match annotation {
                Published::Nothing => {}
                Published::Value { key, value } => collected.add(key, value),
                Published::Failed { why, took } => {
                    let decision = Decision {
                        verdict: Verdict::Failed,
                        message: why,
                        reason: String::new(),
                        took,
                    };
                    self.deny(policy, Some(binding), &decision);
                    self.observe(policy, binding, &decision, "deny");
                }
            }
        }
    }

    fn act(&mut self, policy: &Policy, binding: &Binding, index: usize, decision: &Decision) {
        for action in &binding.actions {
            match action {
                Action::Deny => {
                    self.deny(policy, Some(binding), decision);
                    self.observe(policy, binding, decision, "deny");
                }
                Action::Audit => {
                    self.failures.add(binding, index, &decision.message);
                    self.observe(policy, binding, decision, "audit");
                }
                Action::Warn => {
                    let (policy_name, name, message) = (&policy.name, &binding.name, &decision.message);
                    self.selection.host.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy_name}' with binding '{name}': {message}"
                    ));
                    self.observe(policy, binding, decision, "warn");
                }
            }
        }
    }

    fn observe(&self, policy: &Policy, binding: &Binding, decision: &Decision, action: &'static str) {
        let run = PolicyRun {
            policy: &policy.name,
            binding: &binding.name,
            error: decision.error_type(),
            took: decision.took,
        };
        self.policies.observer.validated(run, action);
    }

    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, decision: &Decision) {
        let (name, message) = (&policy.name, &decision.message);
        let message = match binding {
            Some(binding) => {
                let binding = &binding.name;
                format!(
                    "ValidatingAdmissionPolicy '{name}' with binding '{binding}' denied request: {message}"
                )
            }
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: {message}"),
        };
        let reason = match decision.reason.as_str() {
            "" => "Invalid",
            own => own,
        };
        self.refused
            .get_or_insert_with(|| Denial::by_validation(reason, message));
    }

    fn config_error(&mut self, error: &ConfigError<'_>) {
        if error.policy.ignores_failure {
            return;
        }
        let of = if error.binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let decision = Decision {
            verdict: Verdict::Failed,
            message: format!("failed to configure {of}: {}", error.why),
            reason: String::new(),
            took: std::time::Duration::ZERO,
        };
        self.deny(error.policy, error.binding, &decision);
    }
}
