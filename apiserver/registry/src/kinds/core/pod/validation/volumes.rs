//! Volumes.

use super::files::{downward_file, items, mode, required};
use super::paths::no_backsteps;
use super::projected::projected;
use super::sources;
use crate::shared::validation::{Errors, Path, dns_label, one_of, quantity};
use machinery_schema::{Kind, Ref};
use std::collections::{HashMap, HashSet};

/// Names that containers may refer to.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// The volumes that are in order, and whether one can be a block device.
    volumes: HashMap<&'a str, bool>,
    resource_claims: HashSet<&'a str>,
}

impl Known<'_> {
    pub fn has_volume(&self, name: &str) -> bool {
        self.volumes.contains_key(name)
    }

    pub fn has_resource_claim(&self, name: &str) -> bool {
        self.resource_claims.contains(name)
    }

    /// Reports whether the volume can be a block device.
    pub fn is_claim(&self, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|is_claim| *is_claim)
    }
}

/// All volumes of a spec; answers with what its containers may name.
pub fn validate<'a>(errors: &mut Errors, path: &Path<'_>, spec: Ref<'a>) -> Known<'a> {
    let mut known = Known {
        resource_claims: spec.list("resourceClaims").map(|own| own.str("name")).collect(),
        ..Known::default()
    };
    for (index, volume) in spec.list("volumes").enumerate() {
        let at = path.index(index);
        let before = errors.len();
        source(errors, &at, volume);
        let name = volume.str("name");
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            dns_label(errors, &at.child("name"), name);
        }
        if known.has_volume(name) {
            errors.duplicate(&at.child("name"), name);
        }
        if errors.len() == before {
            let claim = volume.get("persistentVolumeClaim").is_some() || volume.get("ephemeral").is_some();
            *known.volumes.entry(name).or_default() |= claim;
        }
    }
    known
}

/// The sources in the order in which upstream looks for them.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// A volume has exactly one source.
fn source(errors: &mut Errors, path: &Path<'_>, volume: Ref<'_>) {
    let mut found = false;
    // A volume has two members, not thirty.
    let members: Vec<(&str, Ref<'_>)> = volume
        .entries()
        .filter(|(_, value)| value.kind() == Kind::Map)
        .collect();
    for name in SOURCES {
        let Some((_, value)) = members.iter().find(|(own, _)| *own == name).copied() else {
            continue;
        };
        if found {
            // Upstream spells two of them otherwise.
            let shown = match name {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            errors.forbidden(&path.child(shown), "may not specify more than 1 volume type");
        } else {
            one_source(errors, &path.child(name), name, value);
            sources::validate(errors, path, name, value);
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn one_source(errors: &mut Errors, path: &Path<'_>, name: &str, source: Ref<'_>) {
    match name {
        "emptyDir" => empty_dir(errors, path, source),
        "hostPath" => host_path(errors, path, source),
        "configMap" => named_files(errors, path, source, "name"),
        "secret" => named_files(errors, path, source, "secretName"),
        "downwardAPI" => downward_api(errors, path, source),
        "projected" => projected(errors, path, source),
        "persistentVolumeClaim" if source.str("claimName").is_empty() => {
            errors.required(&path.child("claimName"), "");
        }
        "nfs" => nfs(errors, path, source),
        "image" => {
            required(errors, path, source, &["reference"]);
            one_of(
                errors,
                path,
                source,
                "pullPolicy",
                &["Always", "IfNotPresent", "Never"],
                None,
            );
        }
        _ => {}
    }
}

fn empty_dir(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let limit = source.get("sizeLimit").and_then(quantity);
    if limit.is_some_and(|limit| limit.is_negative()) {
        errors.forbidden(
            &path.child("sizeLimit"),
            "SizeLimit field must be a valid resource quantity",
        );
    }
}

/// A path of the node, here and in volumes.
pub(crate) fn host_path(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let target = source.str("path");
    if target.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    no_backsteps(errors, &path.child("path"), target);
    let types = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    if !types.contains(&source.str("type")) {
        errors.not_supported(&path.child("type"), source.str("type"), &types);
    }
}

fn nfs(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    required(errors, path, source, &["server", "path"]);
    let target = source.str("path");
    if !target.starts_with('/') {
        errors.invalid(&path.child("path"), target, "must be an absolute path");
    }
}

/// A ConfigMap or Secret as files.
fn named_files(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, name: &str) {
    if source.str(name).is_empty() {
        errors.required(&path.child(name), "");
    }
    mode(errors, path, source, "defaultMode");
    items(errors, &path.child("items"), source);
}

fn downward_api(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    mode(errors, path, source, "defaultMode");
    for item in source.list("items") {
        downward_file(errors, path, item);
    }
}
