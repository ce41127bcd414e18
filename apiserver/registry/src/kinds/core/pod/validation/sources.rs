//! Sources of volumes that are other people's storage: what each cannot do without.

use super::files::required;
use super::paths::descending_path;
use crate::kinds::core::persistent_volume_claim::validation as claim;
use crate::shared::validation::{Errors, Path, annotations, dns_subdomain, labels, one_of};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;

const MAX_CSI_DRIVER: usize = 63;
const MAX_LUN: i64 = 255;
const MAX_PARTITION: i64 = 255;

/// Sources of which upstream asks only that these members be there.
const REQUIRED: [(&str, &[&str]); 9] = [
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("glusterfs", &["endpoints", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("storageos", &["volumeName"]),
];

/// Validates the source of a volume; `path` is the volume's.
pub(crate) fn validate(errors: &mut Errors, path: &Path<'_>, name: &str, source: Ref<'_>) {
    // Upstream calls one of them by the name it had first.
    let shown = if name == "gcePersistentDisk" {
        "persistentDisk"
    } else {
        name
    };
    let at = path.child(shown);
    if let Some((_, members)) = REQUIRED.iter().find(|(own, _)| *own == name) {
        required(errors, &at, source, members);
    }
    match name {
        "gcePersistentDisk" => disk(errors, &at, source, "pdName"),
        "awsElasticBlockStore" => disk(errors, &at, source, "volumeID"),
        "gitRepo" => {
            required(errors, &at, source, &["repository"]);
            descending_path(errors, &at.child("directory"), source.str("directory"));
        }
        "rbd" | "cephfs" => {
            if source.list("monitors").len() == 0 {
                errors.required(&at.child("monitors"), "");
            }
            let members: &[&str] = if name == "rbd" { &["image"] } else { &[] };
            required(errors, &at, source, members);
        }
        "iscsi" => iscsi(errors, &at, source),
        "fc" => fibre_channel(errors, &at, source),
        "flocker" => flocker(errors, &at, source),
        "quobyte" => quobyte(errors, &at, source),
        "azureDisk" => azure_disk(errors, &at, source),
        "csi" => csi(errors, &at, source),
        "ephemeral" => ephemeral(errors, &at.child("volumeClaimTemplate"), source),
        _ => {}
    }
}

fn disk(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, id: &str) {
    required(errors, path, source, &[id]);
    let partition = source.get("partition").and_then(Ref::as_i64).unwrap_or_default();
    if !(0..=MAX_PARTITION).contains(&partition) {
        let detail = syntax::inclusive_range(1, MAX_PARTITION);
        errors.invalid(&path.child("partition"), partition, detail);
    }
}

fn lun(errors: &mut Errors, path: &Path<'_>, lun: i64) {
    if !(0..=MAX_LUN).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, syntax::inclusive_range(0, MAX_LUN));
    }
}

fn iscsi(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    required(errors, path, source, &["targetPortal", "iqn"]);
    let known = |name: &str| ["iqn", "eui", "naa"].iter().any(|form| name.starts_with(form));
    let detail = "must be valid format starting with iqn, eui, or naa";
    let iqn = source.str("iqn");
    if !iqn.is_empty() && !known(iqn) {
        errors.invalid(&path.child("iqn"), iqn, detail);
    }
    lun(
        errors,
        path,
        source.get("lun").and_then(Ref::as_i64).unwrap_or_default(),
    );
    let flag = |name| source.get(name).and_then(Ref::as_bool) == Some(true);
    if (flag("chapAuthDiscovery") || flag("chapAuthSession")) && source.get("secretRef").is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(name) = source
        .get("initiatorName")
        .and_then(Ref::as_str)
        .filter(|name| !known(name))
    {
        errors.invalid(&path.child("initiatorname"), name, detail);
    }
}

/// A LUN of Fibre Channel, here and in volumes.
pub(crate) fn fibre_channel(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let at = path.child("targetWWNs");
    let (targets, ids) = (source.list("targetWWNs").len(), source.list("wwids").len());
    if targets == 0 && ids == 0 {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if targets > 0 && ids > 0 {
        let shown = source.get("targetWWNs").map(Ref::to_json).unwrap_or_default();
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at, Shown(shown), detail);
    }
    match source.get("lun").and_then(Ref::as_i64) {
        _ if targets == 0 => {}
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(own) => lun(errors, path, own),
    }
}

fn flocker(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let (name, uuid) = (source.str("datasetName"), source.str("datasetUUID"));
    match (name, uuid) {
        ("", "") => errors.required(path, "one of datasetName and datasetUUID is required"),
        ("", _) | (_, "") => {}
        _ => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.str("registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), detail);
    }
    for pair in registry.split(',').filter(|_| !registry.is_empty()) {
        if !pair.contains(':') {
            errors.invalid(&path.child("registry"), registry, detail);
        }
    }
    required(errors, path, source, &["volume"]);
}

fn azure_disk(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    required(errors, path, source, &["diskName", "diskURI"]);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    one_of(errors, path, source, "cachingMode", &modes, None);
    one_of(
        errors,
        path,
        source,
        "kind",
        &["Dedicated", "Managed", "Shared"],
        None,
    );
    let (begin, form) = match source.str("kind") {
        "" => return,
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    let uri = source.str("diskURI");
    if !uri.starts_with(begin) {
        errors.not_supported(&path.child("diskURI"), uri, &[form]);
    }
}

fn csi(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    required(errors, path, source, &["driver"]);
    let (at, driver) = (path.child("driver"), source.str("driver"));
    if driver.len() > MAX_CSI_DRIVER {
        errors.too_long(&at, MAX_CSI_DRIVER);
    }
    if !driver.is_empty() {
        let problems = syntax::dns1123_subdomain(&driver.to_lowercase());
        errors.all_invalid(&at, driver, problems);
    }
    if let Some(secret) = source.get("nodePublishSecretRef") {
        let at = path.child("nodePublishSecretRef");
        required(errors, &at, secret, &["name"]);
        if !secret.str("name").is_empty() {
            dns_subdomain(errors, &at.child("name"), secret.str("name"));
        }
    }
}

/// A claim that is made with the pod: its name is the pod's to give.
fn ephemeral(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let Some(template) = source.get("volumeClaimTemplate") else {
        return errors.required(path, "");
    };
    let (metadata, of) = (path.child("metadata"), |name| template.at(&["metadata", name]));
    annotations(errors, &metadata.child("annotations"), of("annotations"));
    labels(errors, &metadata.child("labels"), of("labels"));
    for name in ["name", "generateName", "namespace"] {
        if !template.str_at(&["metadata", name]).is_empty() {
            errors.forbidden(&path.child("metadata").child(name), "cannot be set");
        }
    }
    if let Some(spec) = template.get("spec") {
        claim::validate_spec(errors, &path.child("spec"), spec);
    }
}
