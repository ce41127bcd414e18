//! ValidatingWebhookConfiguration: webhooks that may refuse requests.

use super::webhooks;
use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "validatingwebhookconfigurations")
    .traits(super::TRAITS)
    .rules(ValidationRules::create(webhooks::validating).update(webhooks::validating_update))
    .warnings(webhooks::warnings)
    .default_lines(&[super::defaults::WEBHOOKS])
    .columns(super::columns::webhooks);
