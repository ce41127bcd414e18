//! MutatingWebhookConfiguration: webhooks that may change requests.

use super::webhooks;
use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(webhooks::mutating).update(webhooks::mutating_update))
    .warnings(webhooks::warnings)
    .default_lines(&[
        super::defaults::WEBHOOKS,
        &["webhooks[].reinvocationPolicy=\"Never\""],
    ])
    .columns(super::columns::webhooks);
