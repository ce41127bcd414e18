//! The kind of policy.

pub mod pod_disruption_budget;
