//! Objects and fields that are stored and have no effect yet. These lists only shrink.
//!
//! [`warning`] is of a kind as a whole, [`fields`] and [`pods`] of single fields. [`refusal`] is of objects that a server
//! does not store unless it is told to: their writer believes that something is kept out, and nothing is (decision 0030).

mod fields;
mod pods;
mod refusal;

pub use fields::warnings;
pub(crate) use pods::pod;
pub use refusal::refusal;

/// Resources whose objects nothing acts on, with what is missing.
const NOT_ENFORCED: [(&str, &str, &str); 21] = [
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        "policies are not evaluated",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        "policies are not evaluated",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "webhooks are not called",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "policies are not evaluated",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "policies are not evaluated",
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "webhooks are not called",
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        "requests are not proxied",
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "no controller acts on it",
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "no signer acts on it",
    ),
    (
        "certificates.k8s.io",
        "podcertificaterequests",
        "no signer acts on it",
    ),
    ("networking.k8s.io", "ingressclasses", "no gateway acts on it"),
    ("networking.k8s.io", "ingresses", "no gateway acts on it"),
    ("networking.k8s.io", "networkpolicies", "traffic is not filtered"),
    ("resource.k8s.io", "deviceclasses", "devices are not allocated"),
    ("resource.k8s.io", "devicetaintrules", "devices are not allocated"),
    ("resource.k8s.io", "resourceclaims", "devices are not allocated"),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        "devices are not allocated",
    ),
    ("storage.k8s.io", "storageclasses", "volumes are not provisioned"),
    ("storage.k8s.io", "volumeattachments", "volumes are not attached"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "volumes are not changed",
    ),
    (
        "storagemigration.k8s.io",
        "storageversionmigrations",
        "no controller acts on it",
    ),
];

/// The warning an object of this resource is created with.
pub fn warning(group: &str, plural: &str) -> Option<String> {
    let (_, _, missing) = NOT_ENFORCED
        .iter()
        .find(|(g, p, _)| *g == group && *p == plural)?;
    Some(format!(
        "{plural} are stored but not enforced by this server yet: {missing}"
    ))
}

/// The warning for a field.
fn stored_only(path: &str, missing: &str) -> String {
    format!("{path}: stored but not enforced by this server yet: {missing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_not_enforced_are_in_the_table() {
        let table = machinery_api::table();
        for (group, plural, _) in NOT_ENFORCED {
            let mut kinds = table.kinds().iter();
            let known = kinds.any(|kind| kind.gvk.group == group && kind.plural == plural);
            assert!(known, "{group}/{plural}");
            assert!(warning(group, plural).is_some());
        }
    }
}
