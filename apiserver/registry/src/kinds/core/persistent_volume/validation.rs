//! Validation of PersistentVolumes: size, modes, and one source.

use crate::kinds::core::persistent_volume_claim::validation::{VOLUME_MODES, access_modes};
use crate::shared::validation::{Errors, Path, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, Quantity, syntax};
use machinery_schema::Ref;

/// Members of the spec that say where the data are, in the order upstream looks.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flocker",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
    "flexVolume",
];
const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];

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
    sources(&mut errors, &path, spec);
    let class = spec.str("storageClassName");
    if !class.is_empty() {
        errors.all_invalid(
            &path.child("storageClassName"),
            class,
            syntax::dns1123_subdomain(class),
        );
    }
    let mode = spec.str("volumeMode");
    if !mode.is_empty() && !VOLUME_MODES.contains(&mode) {
        errors.not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES);
    }
    errors.into_list()
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

/// Validates a changed volume; its source is immutable.
pub fn validate_update(volume: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = validate(volume);
    let moved = SOURCES.iter().any(|name| {
        let of = |object: Ref<'_>| object.at(&["spec", name]).map(Ref::to_json);
        of(volume) != of(old)
    });
    if moved {
        let mut errors = Errors::new();
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&Path::of("spec.persistentvolumesource"), detail);
        problems.extend(errors.into_list());
    }
    problems
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
    let text = size.and_then(Ref::as_str).unwrap_or_default();
    let amount = text.parse::<Quantity>().ok();
    if amount.is_some_and(|amount| amount <= Quantity::default()) {
        errors.invalid(&path.key("storage"), text, "must be greater than zero");
    }
}

fn sources(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut given = 0;
    for name in SOURCES {
        let Some(source) = present(spec, name) else {
            continue;
        };
        given += 1;
        let at = path.child(name);
        if given > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        match name {
            "hostPath" => host_path(errors, &at.child("path"), source.str("path")),
            "nfs" => {
                for field in ["server", "path"] {
                    if source.str(field).is_empty() {
                        errors.required(&at.child(field), "");
                    }
                }
                if !source.str("path").is_empty() && !source.str("path").starts_with('/') {
                    errors.invalid(&at.child("path"), source.str("path"), "must be an absolute path");
                }
            }
            "local" if present(spec, "nodeAffinity").is_none() => {
                let detail = "Local volume requires node affinity";
                errors.required(&path.child("nodeAffinity"), detail);
            }
            "csi" => {
                for field in ["driver", "volumeHandle"] {
                    if source.str(field).is_empty() {
                        errors.required(&at.child(field), "");
                    }
                }
            }
            _ => {}
        }
    }
    if given == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn host_path(errors: &mut Errors, path: &Path<'_>, text: &str) {
    if text.is_empty() {
        errors.required(path, "");
    }
    if text.split('/').any(|part| part == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}
