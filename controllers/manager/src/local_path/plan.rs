//! Choice of the claims and volumes that are ours, and the fields written of them: pure.

use super::PROVISIONER;
use crate::volume_binder::views::{
    BETA_PROVISIONER, ClaimView, ClassView, MADE_ON, PROVISIONED_BY, PROVISIONER as CALLED, SELECTED_NODE,
    VolumeView,
};
use machinery_client::Object;
use serde_json::{Value, json};

/// The node of a volume that was made here.
pub(super) const NODE: &str = MADE_ON;
/// Keeps a volume until its folder is removed: upstream's, of provisioners outside of Kubernetes.
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Access modes of a folder on one node.
const MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// Reports whether the claim calls this provisioner, and has its node.
pub(super) fn is_ours(claim: &Object<ClaimView>) -> bool {
    let called = [CALLED, BETA_PROVISIONER].into_iter().any(|name| {
        let own = claim.annotations.get(name);
        own.is_some_and(|own| &**own == PROVISIONER)
    });
    called && claim.volume.is_empty() && !claim.header.is_deleting()
}

/// The node that was selected for the claim, `None` where it still waits for one; an error where its class makes no volume
/// for it.
pub(super) fn node_of<'a>(
    claim: &'a ClaimView,
    class: Option<&ClassView>,
) -> Result<Option<&'a str>, String> {
    let Some(class) = class.filter(|class| &*class.provisioner == PROVISIONER) else {
        let name = claim.class();
        return Err(format!("claim calls {PROVISIONER}, its class {name:?} does not"));
    };
    let node = claim.annotations.get(SELECTED_NODE);
    match node {
        None if !class.waits_for_pod => {
            let why =
                "configuration error, no node was specified: the class must wait for the first consumer";
            Err(why.to_owned())
        }
        node => Ok(node.map(|node| &**node)),
    }
}

/// Reports whether the volume was made here, and is done with as far as its claim goes.
pub(super) fn made_here(volume: &Object<VolumeView>) -> bool {
    let by = volume.annotations.get(PROVISIONED_BY);
    let over = matches!(&*volume.phase, "Released" | "Failed") || volume.header.is_deleting();
    over && by.is_some_and(|by| &**by == PROVISIONER)
}

/// Fate of a volume that is done with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It stays as it is.
    Stays,
    /// The folder is removed, then the volume.
    Removed,
    /// It is released, the folder stays.
    LetGo,
}

/// The end of the live volume.
pub(super) fn end_of(volume: &Value) -> End {
    let deleting = !volume["metadata"]["deletionTimestamp"].is_null();
    let phase = volume["status"]["phase"].as_str().unwrap_or_default();
    let deletes = volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
    let by = &volume["metadata"]["annotations"][PROVISIONED_BY];
    match phase {
        _ if *by != PROVISIONER => End::Stays,
        "Bound" => End::Stays,
        "Released" | "Failed" if deletes => End::Removed,
        _ if deleting && deletes => End::Removed,
        _ if deleting => End::LetGo,
        _ => End::Stays,
    }
}

/// Demands of the claim and its class that folders cannot give.
pub(super) fn problem(claim: &Value, class: &Value) -> Option<String> {
    let spec = &claim["spec"];
    let modes = spec["accessModes"].as_array().into_iter().flatten();
    let other = modes.filter_map(Value::as_str).find(|mode| !MODES.contains(mode));
    if let Some(mode) = other {
        let [one, pod] = MODES;
        return Some(format!(
            "access mode {mode} is not supported, {one} and {pod} are"
        ));
    }
    let why = if spec["volumeMode"] == "Block" {
        "block volumes are not supported"
    } else if !spec["selector"].is_null() {
        "claim.Spec.Selector is not supported"
    } else if !spec["dataSource"].is_null() || !spec["dataSourceRef"].is_null() {
        "data sources are not supported"
    } else if class["parameters"].as_object().is_some_and(|own| !own.is_empty()) {
        "parameters of the class are not supported"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// A folder that a node made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Folder<'a> {
    pub(super) node: &'a str,
    pub(super) host_name: &'a str,
    pub(super) path: &'a str,
}

/// The name of the claim's volume, and of its folder.
pub(super) fn name_of(uid: &str) -> String {
    format!("pvc-{uid}")
}

/// The claim's volume.
pub(super) fn volume(claim: &Value, class: &Value, folder: Folder<'_>) -> Value {
    let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [folder.host_name]}]);
    let policy = class["reclaimPolicy"].as_str().unwrap_or("Delete");
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name_of(uid), "finalizers": [FINALIZER],
            "annotations": {PROVISIONED_BY: PROVISIONER, NODE: folder.node}
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class["metadata"]["name"],
            "volumeMode": "Filesystem",
            "claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"],
                "name": metadata["name"], "uid": uid, "resourceVersion": metadata["resourceVersion"]
            },
            "local": {"path": folder.path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
        }
    });
    if spec["volumeAttributesClassName"].is_string() {
        volume["spec"]["volumeAttributesClassName"] = spec["volumeAttributesClassName"].clone();
    }
    volume
}
