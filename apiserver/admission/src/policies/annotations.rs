//! Annotations that policies add to a request's audit event, within bounds.

use super::definition::Binding;
use crate::host::Host;
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes that are taken of one value.
const MAX_VALUE: usize = 10 * 1024;
/// Bytes of the values of several parameters together.
const MAX_JOINED: usize = 64 << 10;
/// Failures that are written down.
const MAX_FAILURES: usize = 50;
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Values of a policy's annotations by their keys, each once.
#[derive(Debug, Default)]
pub(super) struct Collected(BTreeMap<String, Vec<String>>);

impl Collected {
    pub(super) fn add(&mut self, key: String, mut value: String) {
        let mut end = value.len().min(MAX_VALUE);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        let known = self.0.entry(key).or_default();
        let bytes: usize = known.iter().map(String::len).sum();
        if bytes + value.len() <= MAX_JOINED && !known.contains(&value) {
            known.push(value);
        }
    }

    pub(super) fn publish(self, policy: &str, host: &dyn Host) {
        for (key, values) in self.0 {
            host.annotate(format!("{policy}/{key}"), values.join(", "));
        }
    }
}

/// Upstream's `ValidationFailureValue`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    message: String,
    policy: String,
    binding: String,
    expression_index: usize,
    validation_actions: Vec<String>,
}

/// Validations that failed, of bindings that audit them.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<Failure>);

impl Failures {
    pub(super) fn add(&mut self, binding: &Binding, expression_index: usize, message: &str) {
        if self.0.len() == MAX_FAILURES {
            return;
        }
        self.0.push(Failure {
            message: message.to_owned(),
            policy: binding.policy().to_owned(),
            binding: binding.name.clone(),
            expression_index,
            validation_actions: binding.action_names.clone(),
        });
    }

    pub(super) fn publish(self, host: &dyn Host) {
        if !self.0.is_empty() {
            let text = serde_json::to_string(&self.0).unwrap_or_default();
            host.annotate(FAILURES.to_owned(), text);
        }
    }
}
