//! Operators and the steps of their scenarios, a file for each.

mod cert_manager;
mod gatekeeper;
mod helm;
mod kueue;
mod operator;
mod prometheus_operator;

pub(crate) use operator::{Mount, Operator, Program, Service, Step};

/// All scenarios.
pub(crate) const CATALOG: &[Operator] = &[
    helm::OPERATOR,
    prometheus_operator::OPERATOR,
    cert_manager::OPERATOR,
    kueue::OPERATOR,
    gatekeeper::OPERATOR,
];
