//! MutatingWebhookConfiguration: webhooks that may change requests.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    .traits(super::TRAITS)
    .not_enforced("webhooks are not called")
    .refused(super::webhooks::refusal)
    .default_lines(&[
        super::defaults::WEBHOOKS,
        &["webhooks[].reinvocationPolicy=\"Never\""],
    ])
    .columns(super::columns::webhooks);
