//! ValidatingWebhookConfiguration: webhooks that may refuse requests.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "validatingwebhookconfigurations")
    .traits(super::TRAITS)
    .not_enforced("webhooks are not called")
    .refused(super::webhooks::refusal)
    .default_lines(&[super::defaults::WEBHOOKS])
    .columns(super::columns::webhooks);
