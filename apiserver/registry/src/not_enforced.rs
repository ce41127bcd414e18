//! What is stored but has no effect yet. These lists only shrink.

use crate::validation::Path;
use machinery_schema::Ref;

/// Resources whose objects nothing acts on, with what is missing.
const NOT_ENFORCED: [(&str, &str, &str); 32] = [
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
    ("networking.k8s.io", "ingressclasses", "no gateway acts on it"),
    ("networking.k8s.io", "ingresses", "no gateway acts on it"),
    ("networking.k8s.io", "networkpolicies", "traffic is not filtered"),
    (
        "policy",
        "poddisruptionbudgets",
        "its status is not kept up to date",
    ),
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
    let missing = match *missing {
        "limits" | "quotas" => format!("{missing} are not enforced"),
        other => other.to_owned(),
    };
    Some(format!(
        "{plural} are stored but not enforced by this server yet: {missing}"
    ))
}

/// Volumes that nodes provide; a pod with another is stored, and does not start.
const PROVIDED_VOLUMES: [&str; 6] = [
    "configMap",
    "downwardAPI",
    "emptyDir",
    "hostPath",
    "projected",
    "secret",
];

/// The warnings for the volumes of a pod's spec, or a template's.
pub(crate) fn volumes(path: &Path<'_>, spec: Ref<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, volume) in spec.list("volumes").enumerate() {
        let sources = volume
            .entries()
            .filter(|(name, value)| *name != "name" && !value.is_null());
        for (source, _) in sources.filter(|(source, _)| !PROVIDED_VOLUMES.contains(source)) {
            let at = path.index(index);
            warnings.push(format!(
                "{}: stored but not enforced by this server yet: nodes do not provide volumes of this type",
                at.child(source).render()
            ));
        }
    }
    warnings
}
