//! Defaults that several kinds of the group have.

/// Lines of policies.
pub(super) const POLICY: &[&str] = &[
    "spec.failurePolicy=\"Fail\"",
    "spec.matchConstraints.matchPolicy=\"Equivalent\"",
    "spec.matchConstraints.namespaceSelector={}",
    "spec.matchConstraints.objectSelector={}",
    "spec.matchConstraints.resourceRules[].scope=\"*\"",
    "spec.matchConstraints.excludeResourceRules[].scope=\"*\"",
];

/// Lines of bindings of policies.
pub(super) const BINDING: &[&str] = &[
    "spec.matchResources.matchPolicy=\"Equivalent\"",
    "spec.matchResources.namespaceSelector={}",
    "spec.matchResources.objectSelector={}",
    "spec.matchResources.resourceRules[].scope=\"*\"",
    "spec.matchResources.excludeResourceRules[].scope=\"*\"",
];

/// Lines of configurations of webhooks.
pub(super) const WEBHOOKS: &[&str] = &[
    "webhooks[].clientConfig.service.port=443",
    "webhooks[].failurePolicy=\"Fail\"",
    "webhooks[].matchPolicy=\"Equivalent\"",
    "webhooks[].namespaceSelector={}",
    "webhooks[].objectSelector={}",
    "webhooks[].rules[].scope=\"*\"",
    "webhooks[].timeoutSeconds=10",
];
