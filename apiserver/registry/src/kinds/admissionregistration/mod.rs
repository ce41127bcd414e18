//! Kinds of admissionregistration.k8s.io.

mod columns;
mod defaults;
mod expressions;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
mod policies;
mod rules;
mod static_names;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhooks;

use crate::engine::traits::Traits;

/// Traits of every kind of the group.
const TRAITS: Traits = Traits::COUNTED.any_finalizers().revision_wanted();
