//! MutatingAdmissionPolicy: policies change a request one after the other, in the order of their names, and each sees what those before
//! it have changed.

use super::definition::{Binding, MutatingPolicy, Policy};
use super::denial::Denial;
use super::invocation::{ConfigError, Skipped, Spending, matching};
use super::observer::{ErrorType, PolicyRun};
use super::patch::{Failure, mutated};
use super::{Hook, Policies};
use crate::expressions::{Inputs, Matched, matched};
use crate::host::Equivalent;
use crate::matching::{Candidate, Objects, Selection, request};
use crate::rejection::cut;
use crate::{AdmissionError, Caller, Operation, Plugin, Reinvocation, Request, Step};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// See the module.
#[derive(Debug)]
pub struct MutatingPolicies(Arc<Policies>);

impl MutatingPolicies {
    pub fn new(policies: &Arc<Policies>) -> Self {
        Self(Arc::clone(policies))
    }
}

#[async_trait]
impl Plugin for MutatingPolicies {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    /// All but deletes: there is nothing to change in what is deleted.
    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update, Operation::Connect]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        !self.0.mutating.load().is_empty()
            && request.operation != Operation::Delete
            && super::may_see(request)
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
        let hooks = self.0.mutating.load_full();
        let state = request.reinvocation;
        if let Some(state) = state {
            state.compare(Caller::Policies, Some(object));
        }
        let mut dispatch = Dispatch {
            policies: &self.0,
            selection: &selection,
            objects: Objects {
                new: Some(object),
                old,
            },
            state,
            candidate: Candidate::new(&selection, Some(object), old),
            spending: Spending::new(),
            failures: Vec::new(),
        };
        for hook in hooks.iter() {
            dispatch.hook(hook).await?;
        }
        let Dispatch {
            candidate, failures, ..
        } = dispatch;
        refused(failures)?;
        if candidate.is_patched {
            if let Some(state) = state {
                state.changed(Caller::Policies);
            }
            *object = candidate.finish(object).await?;
        }
        if let Some(state) = state {
            state.leave(Caller::Policies, Some(object));
        }
        Ok(())
    }
}

/// A policy that could not be evaluated, and what upstream says of it.
struct Problem {
    message: String,
    reason: &'static str,
}

/// The first problem is the answer's reason and message, and each is a cause.
fn refused(problems: Vec<Problem>) -> Result<(), AdmissionError> {
    let Some(first) = problems.first() else {
        return Ok(());
    };
    let reason = first.reason;
    let messages = problems.into_iter().map(|own| own.message).collect();
    let denial = Denial::by_mutations(reason, messages);
    Err(AdmissionError::Denied(Box::new(denial)))
}

/// One request at all policies.
struct Dispatch<'a> {
    policies: &'a Policies,
    selection: &'a Selection<'a>,
    /// The objects of the request before any policy has changed them, by which it matches policies.
    objects: Objects<'a>,
    state: Option<&'a Reinvocation>,
    candidate: Candidate<'a>,
    spending: Spending,
    failures: Vec<Problem>,
}

/// A policy that is called for one parameter of a binding.
#[derive(Clone, Copy)]
struct Invocation<'h> {
    policy: &'h MutatingPolicy,
    binding: &'h Binding,
    params: Option<&'h Tree>,
    to: &'h Equivalent,
    /// See [`Inputs::work`].
    work: &'h AtomicU64,
}

impl Invocation<'_> {
    /// The name by which it is called again.
    fn id(&self) -> String {
        let of = |member| self.params.map_or("", |own| own.str_at(&["metadata", member]));
        let (policy, binding) = (&self.policy.policy.name, &self.binding.name);
        format!("{policy}/{binding}/{}/{}", of("namespace"), of("name"))
    }
}

impl Dispatch<'_> {
    async fn hook(&mut self, hook: &Hook<MutatingPolicy>) -> Result<(), AdmissionError> {
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
        let work = AtomicU64::new(0);
        for binding in &hook.bindings {
            let found = self
                .policies
                .params(policy, binding, namespaced, self.selection, self.objects);
            let params = match found.await {
                Ok(params) => params,
                Err(skipped) => {
                    skipped.noted(|error| self.config_error(error))?;
                    continue;
                }
            };
            for params in &params {
                let invocation = Invocation {
                    policy: &hook.policy,
                    binding,
                    params: params.as_ref(),
                    to: &to,
                    work: &work,
                };
                self.invoke(invocation).await?;
            }
        }
        Ok(())
    }

    async fn invoke(&mut self, invocation: Invocation<'_>) -> Result<(), AdmissionError> {
        let Invocation { policy, binding, .. } = invocation;
        if let Err(error) = self.candidate.convert(invocation.to).await {
            return Skipped::of(&policy.policy, None, error).noted(|error| self.config_error(error));
        }
        if !self.conditions_hold(invocation).await? {
            return Ok(());
        }
        let id = invocation.id();
        // A second pass makes no first call.
        if let Some(state) = self.state.filter(|state| state.is_second())
            && !state.is_due(Caller::Policies, &id)
        {
            return Ok(());
        }
        let before = self.candidate.objects().new.cloned();
        for at in 0..policy.mutations.len() {
            let begun = self.policies.runtime.monotonic();
            let done = self.mutate(invocation, at).await;
            let took = self.policies.runtime.monotonic().saturating_sub(begun);
            let error = match &done {
                Ok(()) => ErrorType::None,
                Err(Failure::Mutation(why)) => ErrorType::of(why),
                Err(Failure::Request(_)) => ErrorType::Invalid,
            };
            self.policies.observer.mutated(PolicyRun {
                policy: &policy.policy.name,
                binding: &binding.name,
                error,
                took,
            });
            match done {
                Ok(()) => {}
                Err(Failure::Mutation(why)) => self.problem(&policy.policy, Some(binding), why, "Invalid"),
                Err(Failure::Request(error)) => return Err(error),
            }
        }
        let Some(state) = self.state else { return Ok(()) };
        if self.candidate.objects().new != before.as_ref() {
            state.changed(Caller::Policies);
        }
        if policy.wants_reinvocation {
            state.called(Caller::Policies, &id);
        }
        Ok(())
    }

    async fn conditions_hold(&mut self, invocation: Invocation<'_>) -> Result<bool, AdmissionError> {
        let policy = &invocation.policy.policy;
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let request = request::of_conditions(request::json(self.selection, invocation.to));
        let inputs = Inputs {
            selection: self.selection,
            objects: self.candidate.objects(),
            request: &request,
            namespace: None,
            params: invocation.params,
            variables: Some(&policy.variables),
            runtime: None,
            work: invocation.work,
        };
        self.spending.next(&inputs).await?;
        let (matched, cost) = matched(&policy.conditions, &inputs).await?;
        self.spending.spend(cost);
        if let Matched::Failed(why) = &matched {
            self.problem(policy, Some(invocation.binding), why.clone(), "Invalid");
        }
        Ok(matched == Matched::Yes)
    }

    /// Makes one mutation of a policy.
    async fn mutate(&mut self, invocation: Invocation<'_>, at: usize) -> Result<(), Failure> {
        let objects = self.candidate.objects();
        let Some(object) = objects.new else {
            return Ok(());
        };
        let namespace = self.policies.namespace_object(self.selection).await;
        let namespace = namespace.map_err(Failure::Request)?;
        let request = request::json(self.selection, invocation.to);
        let inputs = Inputs {
            selection: self.selection,
            objects,
            request: &request,
            namespace: namespace.as_ref(),
            params: invocation.params,
            variables: Some(&invocation.policy.policy.variables),
            runtime: None,
            work: invocation.work,
        };
        let next = self.spending.next(&inputs).await;
        next.map_err(Failure::Request)?;
        let done = mutated(&invocation.policy.mutations[at], object, &inputs).await?;
        self.spending.spend(done.cost);
        if let Some(mut object) = done.object {
            let host = self.selection.host;
            host.set_defaults(&mut object, &invocation.to.resource);
            self.candidate.patch(object);
        }
        Ok(())
    }

    fn config_error(&mut self, error: &ConfigError<'_>) {
        let of = if error.binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let why = format!("failed to configure {of}: {}", error.why);
        self.problem(error.policy, error.binding, why, "Forbidden");
    }

    fn problem(&mut self, policy: &Policy, binding: Option<&Binding>, why: String, reason: &'static str) {
        if policy.ignores_failure {
            return;
        }
        let (name, why) = (&policy.name, cut(why));
        let message = match binding {
            Some(binding) => {
                let binding = &binding.name;
                format!("policy '{name}' with binding '{binding}' denied request: {why}")
            }
            None => format!("policy {name:?} denied request: {why}"),
        };
        self.failures.push(Problem { message, reason });
    }
}
