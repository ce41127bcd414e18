//! Kinds of the smaller groups that have rules of their own.

pub(crate) mod api_service;
pub(crate) mod autoscaling;
pub(crate) mod crd;
pub(crate) mod disruption_budget;
pub(crate) mod flow_control;
pub(crate) mod migration;
pub(crate) mod plain;

use crate::strategy::Strategy;
use crate::table_strategy::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;
use std::sync::Arc;

const ADMITTING: Traits = Traits::COUNTED.any_finalizers().revision_wanted();

/// The kinds of admissionregistration.k8s.io.
pub(crate) const ADMISSION: &[Kind] = &[
    Kind::of("mutatingadmissionpolicies", ADMITTING, ValidationRules::NONE),
    Kind::of(
        "mutatingadmissionpolicybindings",
        ADMITTING,
        ValidationRules::NONE,
    ),
    Kind::of("mutatingwebhookconfigurations", ADMITTING, ValidationRules::NONE),
    Kind::of("validatingadmissionpolicies", ADMITTING, ValidationRules::NONE),
    Kind::of(
        "validatingadmissionpolicybindings",
        ADMITTING,
        ValidationRules::NONE,
    ),
    Kind::of(
        "validatingwebhookconfigurations",
        ADMITTING,
        ValidationRules::NONE,
    ),
];

/// The kind of apiregistration.k8s.io, whose own validation looks at its name.
pub(crate) const AGGREGATION: &[Kind] = &[Kind::of(
    "apiservices",
    Traits::PLAIN
        .named(NameRule::Any)
        .any_finalizers()
        .revision_wanted(),
    ValidationRules::create(api_service::validate),
)];

/// The kind of autoscaling.
pub(crate) const AUTOSCALING: &[Kind] = &[Kind::of(
    "horizontalpodautoscalers",
    Traits::COUNTED,
    ValidationRules::create(autoscaling::validation::validate),
)];

/// The kinds of flowcontrol.apiserver.k8s.io.
pub(crate) const FLOW_CONTROL: &[Kind] = &[
    Kind::of(
        "flowschemas",
        Traits::COUNTED,
        ValidationRules::create(flow_control::flow_schema::validate).status(flow_control::validate_status),
    ),
    Kind::of(
        "prioritylevelconfigurations",
        Traits::COUNTED,
        ValidationRules::create(flow_control::priority_level::validate).status(flow_control::validate_status),
    ),
];

/// The kind of storagemigration.k8s.io.
pub(crate) const MIGRATION: &[Kind] = &[Kind::of(
    "storageversionmigrations",
    Traits::PLAIN.revision_wanted(),
    ValidationRules::create(migration::validate)
        .update(migration::validate_update)
        .status(migration::validate_status),
)];

/// The kind of node.k8s.io.
pub(crate) const NODE: &[Kind] = &[Kind::of(
    "runtimeclasses",
    Traits::PLAIN.any_finalizers().put_creates().revision_wanted(),
    ValidationRules::create(plain::validate_runtime_class).update(plain::validate_runtime_class_update),
)];

/// The kind of policy.
pub(crate) const POLICY: &[Kind] = &[Kind::of(
    "poddisruptionbudgets",
    Traits::COUNTED
        .named(NameRule::PathSegment)
        .any_finalizers()
        .revision_wanted(),
    ValidationRules::create(disruption_budget::validate)
        .update(disruption_budget::validate_update)
        .status(disruption_budget::validate_status),
)];

/// The strategy of a kind of these groups that has one of its own.
pub(crate) fn strategy(group: &str, plural: &str) -> Option<Arc<dyn Strategy>> {
    match (group, plural) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => Some(Arc::new(crd::CrdStrategy)),
        _ => None,
    }
}
