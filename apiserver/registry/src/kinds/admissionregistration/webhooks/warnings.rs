//! Warnings about configurations of webhooks.

use crate::kinds::admissionregistration::rules::texts;
use crate::kinds::admissionregistration::static_names;
use machinery_meta::GroupResource;
use machinery_schema::Ref;

/// Reviews that no webhook is called for: without their answers no user has any rights.
const EXCLUDED: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Warnings about a written configuration.
pub(crate) fn warnings(configuration: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let mut all = static_names::warnings(configuration, old);
    for (at, webhook) in configuration.list("webhooks").enumerate() {
        for (index, rule) in webhook.list("rules").enumerate() {
            all.extend(named(rule).map(|resource| {
                format!(
                    "webhooks[{at}].rules[{index}]: {resource} is excluded from admission webhooks; this rule will have no effect"
                )
            }));
        }
    }
    all
}

/// Excluded resources that a rule names.
fn named(rule: Ref<'_>) -> impl Iterator<Item = GroupResource> {
    let (groups, resources) = (texts(rule, "apiGroups"), texts(rule, "resources"));
    let wild = groups.contains(&"*") || resources.contains(&"*");
    let mut found: Vec<GroupResource> = Vec::new();
    for (group, resource) in groups
        .iter()
        .flat_map(|group| resources.iter().map(move |resource| (*group, *resource)))
    {
        let own = GroupResource::new(group, resource);
        if !wild && EXCLUDED.contains(&(group, resource)) && !found.contains(&own) {
            found.push(own);
        }
    }
    found.into_iter()
}
