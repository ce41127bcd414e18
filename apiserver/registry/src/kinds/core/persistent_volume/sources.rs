//! Validation of where a volume's data are: of one source.

use crate::kinds::core::pod::validation::sources::{self as of_pods, fibre_channel};
use crate::kinds::core::pod::validation::volumes::host_path;
use crate::shared::validation::{Errors, Path, csi_driver_name, dns_label, dns_subdomain, present};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Members of the spec that say where the data are, in the order upstream looks.
pub(super) const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];
/// Sources that can be mounted with options.
const WITH_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];
/// The annotation that held options before the field existed.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const MAX_LUN: i64 = 255;
const NOT_A_FORM: &str = "must be valid format";
/// References to Secrets, each with its namespace.
const SECRETS: [&str; 4] = [
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
];

/// Validates that there is one source, and that source.
pub(super) fn sources(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut given = 0;
    for name in SOURCES {
        let Some(source) = present(spec, name) else {
            continue;
        };
        given += 1;
        // Upstream spells one of them otherwise, and validates another wherever it stands.
        let at = path.child(if given > 1 && name == "cephfs" {
            "cephFS"
        } else {
            name
        });
        if given > 1 && name != "flexVolume" {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        match name {
            "hostPath" => host_path(errors, &at, source),
            "nfs" => nfs(errors, &at, source),
            "iscsi" => iscsi(errors, &at, source),
            "fc" => fibre_channel(errors, &at, source),
            "local" => {
                local(errors, &at.child("path"), source.str("path"));
                if present(spec, "nodeAffinity").is_none() {
                    let detail = "Local volume requires node affinity";
                    errors.required(&path.child("nodeAffinity"), detail);
                }
            }
            "csi" => csi(errors, &at, source),
            other => of_pods::validate(errors, path, other, source),
        }
    }
    if given == 0 {
        errors.required(path, "must specify a volume type");
    }
}

/// The annotation with options stands at volumes that know them.
pub(super) fn mount_options(errors: &mut Errors, volume: Ref<'_>) {
    let knows = |spec: Ref<'_>| WITH_OPTIONS.iter().any(|name| present(spec, name).is_some());
    let given = volume.at(&["metadata", "annotations", MOUNT_OPTIONS]).is_some();
    if given && !volume.get("spec").is_some_and(knows) {
        let path = Path::of("metadata.annotations");
        let detail = "may not specify mount options for this volume type";
        errors.forbidden(&path.child(MOUNT_OPTIONS), detail);
    }
}

/// Reports whether an absolute path is that of the root once `.` and `..` are resolved.
pub(super) fn is_root(path: &str) -> bool {
    let depth = path.split('/').fold(0_usize, |depth, part| match part {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    depth == 0
}

fn required(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, names: &[&str]) {
    for name in names.iter().filter(|name| source.str(name).is_empty()) {
        errors.required(&path.child(name), "");
    }
}

fn nfs(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    required(errors, path, source, &["server", "path"]);
    let target = source.str("path");
    if !target.starts_with('/') {
        errors.invalid(&path.child("path"), target, "must be an absolute path");
    }
}

fn local(errors: &mut Errors, path: &Path<'_>, target: &str) {
    if target.is_empty() {
        errors.required(path, "");
    } else if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

fn csi(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    csi_driver_name(errors, &path.child("driver"), source.str("driver"));
    required(errors, path, source, &["volumeHandle"]);
    for name in SECRETS {
        if let Some(secret) = present(source, name) {
            secret_reference(errors, &path.child(name), secret);
        }
    }
}

fn secret_reference(errors: &mut Errors, path: &Path<'_>, secret: Ref<'_>) {
    type Rule = fn(&mut Errors, &Path<'_>, &str);
    let rules: [(&str, Rule); 2] = [("name", dns_subdomain), ("namespace", dns_label)];
    for (name, rule) in rules {
        let (at, value) = (path.child(name), secret.str(name));
        if value.is_empty() {
            errors.required(&at, "");
        } else {
            rule(errors, &at, value);
        }
    }
}

fn iscsi(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let known = |name: &str| ["iqn", "eui", "naa"].iter().any(|form| name.starts_with(form));
    required(errors, path, source, &["targetPortal", "iqn"]);
    let target = source.str("iqn");
    if !target.is_empty() && !known(target) {
        errors.invalid(&path.child("iqn"), target, NOT_A_FORM);
    }
    let lun = source.get("lun").and_then(Ref::as_i64).unwrap_or_default();
    if !(0..=MAX_LUN).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, syntax::inclusive_range(0, MAX_LUN));
    }
    let flag = |name| source.get(name).and_then(Ref::as_bool) == Some(true);
    let secret = present(source, "secretRef");
    if (flag("chapAuthDiscovery") || flag("chapAuthSession")) && secret.is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(secret) = secret {
        required(errors, &path.child("secretRef"), secret, &["name"]);
    }
    let initiator = present(source, "initiatorName").and_then(Ref::as_str);
    if let Some(initiator) = initiator.filter(|name| !known(name)) {
        errors.invalid(&path.child("initiatorname"), initiator, NOT_A_FORM);
    }
}
