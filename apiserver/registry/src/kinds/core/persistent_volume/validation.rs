//! Validation of PersistentVolumes: size, modes, and one source.

use super::sources::{self, SOURCES, sources};
use crate::kinds::core::persistent_volume_claim::validation::{VOLUME_MODES, access_modes};
use crate::kinds::core::pod::validation::scheduling::node_selector;
use crate::shared::validation::{Errors, Path, dns_subdomain, immutable, present, quantity};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, Quantity};
use machinery_schema::{Kind, Ref};

const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const ATTRIBUTES_CLASS: &str = "volumeAttributesClassName";
/// The Secret with which a driver lets a volume grow.
const EXPAND_SECRET: &str = "controllerExpandSecretRef";

/// Every problem of a volume, new or changed.
pub fn validate(volume: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = volume.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    modes(&mut errors, &path, spec);
    capacity(&mut errors, &path.child("capacity"), spec.get("capacity"));
    let policy = spec.str("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.not_supported(&path.child("persistentVolumeReclaimPolicy"), policy, &POLICIES);
    }
    node_affinity(&mut errors, &path.child("nodeAffinity"), spec);
    sources(&mut errors, &path, spec);
    recycled_root(&mut errors, &path, spec);
    let class = spec.str("storageClassName");
    if !class.is_empty() {
        dns_subdomain(&mut errors, &path.child("storageClassName"), class);
    }
    let mode = present(spec, "volumeMode").and_then(Ref::as_str);
    if let Some(mode) = mode.filter(|mode| !VOLUME_MODES.contains(mode)) {
        errors.not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES);
    }
    attributes_class(&mut errors, &path, spec);
    sources::mount_options(&mut errors, volume);
    errors.into_list()
}

fn node_affinity(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(affinity) = present(spec, "nodeAffinity") else {
        return;
    };
    let at = path.child("required");
    match present(affinity, "required") {
        Some(required) => node_selector(errors, &at, required),
        None => errors.required(&at, "must specify required node constraints"),
    }
}

/// Refuses to recycle the root of a node.
fn recycled_root(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let folder = spec.str_at(&["hostPath", "path"]);
    let is_root = folder.starts_with('/') && sources::is_root(folder);
    if is_root && spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
}

fn attributes_class(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(class) = present(spec, ATTRIBUTES_CLASS).and_then(Ref::as_str) else {
        return;
    };
    let at = path.child(ATTRIBUTES_CLASS);
    if class.is_empty() {
        errors.required(&at, "an empty string is disallowed");
    } else {
        dns_subdomain(errors, &at, class);
    }
    if present(spec, "csi").is_none() {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.required(&path.child("csi"), detail);
    }
}

/// Every problem of the spec of a volume that is no object of its own: it is attached, and nothing else.
pub(crate) fn inline(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    const NOT_HERE: &str = "may not be specified in the context of inline volumes";
    if present(spec, "claimRef").is_some() {
        errors.forbidden(&path.child("claimRef"), NOT_HERE);
    }
    if spec.get("capacity").is_some_and(|capacity| !capacity.is_empty()) {
        errors.forbidden(&path.child("capacity"), NOT_HERE);
    }
    if present(spec, "csi").is_none() {
        let detail = "has to be specified in the context of inline volumes";
        errors.required(&path.child("csi"), detail);
    }
    modes(errors, path, spec);
    if !matches!(spec.str("persistentVolumeReclaimPolicy"), "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
    if present(spec, "nodeAffinity").is_some() {
        errors.forbidden(&path.child("nodeAffinity"), NOT_HERE);
    }
    sources(errors, path, spec);
    if !spec.str("storageClassName").is_empty() {
        errors.forbidden(&path.child("storageClassName"), NOT_HERE);
    }
    if !matches!(spec.str("volumeMode"), "" | "Filesystem") {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.child("volumeMode"), detail);
    }
}

fn modes(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let at = path.child("accessModes");
    if spec.list("accessModes").len() == 0 {
        errors.required(&at, "");
    }
    access_modes(errors, &at, spec);
}

/// Validates a changed volume: its source, its mode, and that it has a class of attributes once it had one.
pub fn validate_update(volume: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate(volume));
    if is_moved(volume, old) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&Path::of("spec.persistentvolumesource"), detail);
    }
    let [mode, before] = [volume, old].map(|volume| volume.at(&["spec", "volumeMode"]));
    immutable(
        &mut errors,
        &Path::of("volumeMode"),
        mode,
        before,
        "field is immutable",
    );
    node_affinity_stays(&mut errors, volume, old);
    let has_class = |volume: Ref<'_>| {
        let class = volume.at(&["spec", ATTRIBUTES_CLASS]);
        class.is_some_and(|class| !class.is_null())
    };
    if has_class(old) && !has_class(volume) {
        let path = Path::of("spec");
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&path.child(ATTRIBUTES_CLASS), detail);
    }
    errors.into_list()
}

/// Labels of nodes that may be replaced by their successors.
const SUCCESSORS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
];

/// A volume that is tied to nodes stays so.
fn node_affinity_stays(errors: &mut Errors, volume: Ref<'_>, old: Ref<'_>) {
    let [new, before] =
        [volume, old].map(|volume| volume.at(&["spec", "nodeAffinity"]).filter(|own| !own.is_null()));
    let Some(before) = before else { return };
    if new.is_some_and(|new| is_same_but_for_successors(new, before)) {
        return;
    }
    let shown = new.map_or_else(|| "null".to_owned(), Ref::to_json);
    let detail = "field is immutable, except for updating from beta label to GA";
    errors.invalid(&Path::of("nodeAffinity"), Shown(shown), detail);
}

/// Reports whether two values differ in nothing but keys of labels that have a successor now.
fn is_same_but_for_successors(new: Ref<'_>, old: Ref<'_>) -> bool {
    let is_successor = || {
        let (new, old) = (new.as_str().unwrap_or_default(), old.as_str().unwrap_or_default());
        SUCCESSORS.contains(&(old, new))
    };
    let items = || {
        new.len() == old.len()
            && new
                .items()
                .zip(old.items())
                .all(|(new, old)| is_same_but_for_successors(new, old))
    };
    let members = || {
        new.len() == old.len()
            && new.entries().all(|(name, new)| {
                let old = old.get(name);
                old.is_some_and(|old| is_same_but_for_successors(new, old))
            })
    };
    match (new.kind(), old.kind()) {
        (Kind::List, Kind::List) => items(),
        (Kind::Map, Kind::Map) => members(),
        _ => new.to_json() == old.to_json() || is_successor(),
    }
}

/// Reports whether the source is another. The secret of growth may come where there was none.
fn is_moved(volume: Ref<'_>, old: Ref<'_>) -> bool {
    let secret = old.at(&["spec", "csi", EXPAND_SECRET]);
    let had_secret = secret.is_some_and(|own| !own.is_null());
    let source = |volume: Ref<'_>, name: &str| {
        let mut own = volume.at(&["spec", name])?.to_tree();
        if name == "csi" && !had_secret {
            own.remove(&[EXPAND_SECRET]);
        }
        Some(own.root().to_json())
    };
    SOURCES
        .into_iter()
        .any(|name| source(volume, name) != source(old, name))
}

/// A volume has a size and nothing else.
fn capacity(errors: &mut Errors, path: &Path<'_>, capacity: Option<Ref<'_>>) {
    let count = capacity.map_or(0, |capacity| capacity.len());
    if count == 0 {
        errors.required(path, "");
    }
    let size = capacity.and_then(|capacity| capacity.get("storage"));
    if size.is_none() || count > 1 {
        let shown = capacity
            .filter(|_| count > 0)
            .map_or_else(|| "null".into(), Ref::to_json);
        errors.not_supported(path, Shown(shown), &["storage"]);
    }
    for (name, value) in capacity.into_iter().flat_map(Ref::entries) {
        let Some(amount) = quantity(value) else { continue };
        let at = path.key(name);
        if amount.units() < 0 {
            errors.invalid(&at, amount.units(), "must be a valid resource quantity");
        }
        if amount <= Quantity::default() {
            errors.invalid(&at, amount.to_string(), "must be greater than zero");
        }
    }
}
