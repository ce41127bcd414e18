//! What is stored but has no effect yet. This list only shrinks.

/// Resources whose objects nothing acts on, with what is missing.
const NOT_ENFORCED: [(&str, &str, &str); 26] = [
    ("", "limitranges", "limits"),
    (
        "",
        "persistentvolumeclaims",
        "volumes are not provisioned or bound",
    ),
    ("", "persistentvolumes", "volumes are not bound or attached"),
    ("", "replicationcontrollers", "no controller acts on it"),
    ("", "resourcequotas", "quotas"),
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
    ("apps", "daemonsets", "no controller acts on it"),
    ("apps", "statefulsets", "no controller acts on it"),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "no controller acts on it",
    ),
    ("batch", "cronjobs", "no controller acts on it"),
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
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "requests are not classified by it",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "requests are not classified by it",
    ),
    ("networking.k8s.io", "ingresses", "no gateway acts on it"),
    ("networking.k8s.io", "networkpolicies", "traffic is not filtered"),
    (
        "policy",
        "poddisruptionbudgets",
        "its status is not kept up to date",
    ),
    ("resource.k8s.io", "resourceclaims", "devices are not allocated"),
    ("storage.k8s.io", "volumeattachments", "volumes are not attached"),
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
    let missing = match *missing {
        "limits" | "quotas" => format!("{missing} are not enforced"),
        other => other.to_owned(),
    };
    Some(format!(
        "{plural} are stored but not enforced by this server yet: {missing}"
    ))
}
