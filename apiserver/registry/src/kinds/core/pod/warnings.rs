//! Warnings about a valid pod, or a template of one.

use super::app_armor::{self, Annotated};
use super::path_warnings;
use super::port_warnings::{ContainerPlace, PortPlace, Ports};
use crate::engine::context::{cut_length, fill_warnings};
use crate::shared::validation::{Path, present, quantity};
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::BTreeSet;
use std::collections::HashMap;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
const DEPRECATED_VOLUMES: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const DEPRECATED_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
    ),
    (
        "beta.kubernetes.io/os",
        r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        r#"use "node-role.kubernetes.io/control-plane" instead"#,
    ),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_SUCCESSOR: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;

/// Upstream's warnings, in its order; `path` leads to the pod or template.
pub(crate) fn of(path: &Path<'_>, pod: Ref<'_>) -> Vec<String> {
    let mut warnings = Warnings::default();
    let Some(spec) = pod.get("spec") else {
        return Vec::new();
    };
    let at = path.child("spec");
    let metadata = path.child("metadata");
    let annotations = metadata.child("annotations");
    let annotated = |key: &str| pod.at(&["metadata", "annotations", key]).is_some();
    warnings.labels(&at, spec);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotated(key) {
            warnings.add(&annotations.key(key), message);
        }
    }
    warnings.volumes(&at.child("volumes"), spec);
    warnings.duplicates(&at, spec);
    warnings.fractions(&at.child("overhead"), spec.get("overhead"));
    if spec.at(&["securityContext", "seccompProfile"]).is_none() && annotated(SECCOMP_POD) {
        warnings.add(&annotations.key(SECCOMP_POD), SECCOMP_SUCCESSOR);
    }
    // Those of a new pod have become fields, with a warning, before.
    let armor = (!path.is_root()).then(|| Annotated::of(pod));
    warnings.containers(&at, &annotations, pod, spec, armor);
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Ref::as_i64);
    if grace.is_some_and(|seconds| seconds < 0) {
        warnings.add(
            &at.child("terminationGracePeriodSeconds"),
            "must be >= 0; negative values are invalid and will be treated as 1",
        );
    }
    warnings.pod_affinity(&at.child("affinity"), spec);
    path_warnings::volumes(&mut warnings, spec);
    warnings.all.extend(super::not_enforced::pod(&at, spec));
    warnings.all
}

#[derive(Default)]
pub(super) struct Warnings {
    all: Vec<String>,
    /// Of all, once they are cut.
    characters: usize,
}

pub(crate) fn deprecated_label(key: &str) -> Option<&'static str> {
    let known = DEPRECATED_LABELS.iter().find(|(label, _)| *label == key);
    known.map(|(_, message)| *message)
}

impl Warnings {
    pub(super) fn add(&mut self, path: &Path<'_>, message: &str) {
        if self.is_full() {
            return;
        }
        self.say(format!("{}: {message}", path.to_path()));
    }

    /// A warning that begins with no path.
    pub(super) fn say(&mut self, text: String) {
        if !self.is_full() && !self.all.contains(&text) {
            self.characters += cut_length(&text);
            self.all.push(text);
        }
    }

    /// A client gets no more than this.
    pub(super) fn is_full(&self) -> bool {
        fill_warnings(self.characters)
    }

    /// Labels of nodes that have a successor.
    fn labels(&mut self, path: &Path<'_>, spec: Ref<'_>) {
        let at = path.child("nodeSelector");
        for (key, _) in spec.get("nodeSelector").into_iter().flat_map(Ref::entries) {
            if let Some(message) = deprecated_label(key) {
                self.add(&at.key(key), message);
            }
        }
        let at = path.child("topologySpreadConstraints");
        for (index, constraint) in spec.list("topologySpreadConstraints").enumerate() {
            let (at, key) = (at.index(index), constraint.str("topologyKey"));
            if let Some(message) = deprecated_label(key) {
                self.add(&at.child("topologyKey"), &format!("{key} is {message}"));
            }
            self.null_selector(&at, constraint);
        }
    }

    fn null_selector(&mut self, path: &Path<'_>, of: Ref<'_>) {
        if present(of, "labelSelector").is_none() {
            let message = "a null labelSelector results in matching no pod";
            self.add(&path.child("labelSelector"), message);
        }
    }

    fn volumes(&mut self, path: &Path<'_>, spec: Ref<'_>) {
        for (index, volume) in spec.list("volumes").enumerate() {
            let members = volume.entries().filter(|(_, value)| !value.is_null());
            let members: Vec<&str> = members.map(|(name, _)| name).collect();
            for (name, shown, message) in DEPRECATED_VOLUMES {
                if members.contains(&name) {
                    self.add(&path.index(index).child(shown), message);
                }
            }
        }
    }

    fn duplicates(&mut self, path: &Path<'_>, spec: Ref<'_>) {
        for (list, field, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
            let at = path.child(list);
            let mut seen = BTreeSet::new();
            for (index, item) in spec.list(list).enumerate() {
                let value = item.str(field);
                if seen.contains(&value) {
                    let message = format!("duplicate {what} {value:?}");
                    self.add(&at.index(index).child(field), &message);
                }
                seen.insert(value);
            }
        }
        let at = path.child("imagePullSecrets");
        for (index, secret) in spec.list("imagePullSecrets").enumerate() {
            if secret.str("name").is_empty() {
                self.add(&at.index(index).child("name"), r#"invalid empty name """#);
            }
        }
    }

    /// Warns of fractions of a byte, which no container can have.
    fn fractions(&mut self, path: &Path<'_>, amounts: Option<Ref<'_>>) {
        for resource in ["memory", "ephemeral-storage"] {
            let value = amounts.and_then(|amounts| amounts.get(resource));
            self.fraction(path, resource, value);
        }
    }

    fn containers<'a>(
        &mut self,
        path: &Path<'_>,
        annotations: &Path<'_>,
        pod: Ref<'_>,
        spec: Ref<'a>,
        armor: Option<Annotated<'a>>,
    ) {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        for list in lists {
            let at = path.child(list);
            for (index, container) in spec.list(list).enumerate() {
                let at = at.index(index);
                let key = format!("{SECCOMP_CONTAINER}{}", container.str("name"));
                let profile = container.at(&["securityContext", "seccompProfile"]);
                if profile.is_none() && pod.at(&["metadata", "annotations", &key]).is_some() {
                    self.add(&annotations.key(&key), SECCOMP_SUCCESSOR);
                }
                if armor.as_ref().is_some_and(|armor| armor.differs(container)) {
                    self.add(&annotations.key(&app_armor::key(container)), app_armor::SUCCESSOR);
                }
                let resources = at.child("resources");
                for kind in ["memory", "ephemeral-storage"] {
                    for part in ["limits", "requests"] {
                        let only = container.at(&["resources", part, kind]);
                        self.fraction(&resources.child(part), kind, only);
                    }
                }
                self.environment(&at.child("env"), container);
            }
        }
        let mut taken = Ports::default();
        for list in lists {
            for (index, container) in spec.list(list).enumerate() {
                taken.look_at(self, path, ContainerPlace { list, index }, container);
            }
        }
        let mut names: HashMap<&str, PortPlace> = HashMap::new();
        for list in lists {
            for (index, container) in spec.list(list).enumerate() {
                self.port_names(path, ContainerPlace { list, index }, container, &mut names);
            }
        }
    }

    fn fraction(&mut self, path: &Path<'_>, resource: &str, value: Option<Ref<'_>>) {
        let Some(value) = value else { return };
        if quantity(value).is_some_and(|amount| amount.millis() % 1000 != 0) {
            let text = value.as_str().unwrap_or_default();
            let message = format!("fractional byte value {text:?} is invalid, must be an integer");
            self.add(&path.key(resource), &message);
        }
    }

    /// A second definition may build on the first; then the first is not lost.
    fn environment(&mut self, path: &Path<'_>, container: Ref<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in container.list("env").enumerate() {
            let (name, value) = (item.str("name"), item.str("value"));
            if !seen.contains(&name) {
                seen.insert(name);
                continue;
            }
            let reference = format!("$({name})");
            let hides =
                present(item, "valueFrom").is_some() || value == reference || !value.contains(&reference);
            if hides {
                let message =
                    format!("hides previous definition of {name:?}, which may be dropped when using apply");
                self.add(&path.index(index), &message);
            }
        }
    }

    fn port_names<'a>(
        &mut self,
        spec: &Path<'_>,
        place: ContainerPlace,
        container: Ref<'a>,
        names: &mut HashMap<&'a str, PortPlace>,
    ) {
        let list = spec.child(place.list);
        let at = list.index(place.index);
        let ports = at.child("ports");
        for (index, port) in container.list("ports").enumerate() {
            let name = port.str("name");
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                Some(other) => {
                    let other = other.shown(spec);
                    let message = format!(
                        "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                    );
                    self.add(&ports.index(index), &message);
                }
                None => {
                    let container = place;
                    names.insert(name, PortPlace { container, index });
                }
            }
        }
    }

    fn pod_affinity(&mut self, path: &Path<'_>, spec: Ref<'_>) {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(affinity) = spec.at(&["affinity", kind]) else {
                continue;
            };
            let at = path.child(kind);
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            for (index, term) in affinity.list(required).enumerate() {
                self.null_selector(&at.child(required).index(index), term);
            }
            let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
            for (index, weighted) in affinity.list(preferred).enumerate() {
                if let Some(term) = weighted.get("podAffinityTerm") {
                    let at = at.child(preferred);
                    self.null_selector(&at.index(index).child("podAffinityTerm"), term);
                }
            }
        }
    }
}

/// A warning of a name that is no DNS label, and what it is used in.
pub(crate) fn of_name(object: Ref<'_>, used_in: &str) -> Option<String> {
    let problems = syntax::dns1123_label(object.str_at(&["metadata", "name"]));
    (!problems.is_empty()).then(|| {
        let problems = problems.join(" ");
        format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{problems}]"
        )
    })
}
