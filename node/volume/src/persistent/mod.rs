//! persistentVolumeClaim: the volume behind a claim on this node, and its mount below the pod's folder ([`mounting`]).
//!
//! A claim leads to a path of the machine only by way of a PersistentVolume, which administrators and provisioners write:
//! the claim must be bound to it, and it to the claim by uid. The node must be among those that it is reached from, and
//! a volume of the bundled provisioner leads to this node's own folder of that volume alone ([`this_node`]).

mod mounting;
mod this_node;

pub(crate) use mounting::{group_of_mounted, set_up};
pub use this_node::ThisNode;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume,
};

use crate::VolumeError;

/// Keeps a claim that is being deleted until no pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Group that the files of a volume belong to (documented under "Access control" of PersistentVolumes).
const GROUP: &str = "pv.beta.kubernetes.io/gid";
/// Mount options from before `spec.mountOptions`; they replace those.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// A claim of a pod's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimName {
    pub(crate) name: String,
    /// Made for the pod itself, which must own it.
    pub(crate) is_ephemeral: bool,
    /// The pod requests it read-only.
    pub(crate) is_read_only: bool,
}

/// The claim behind a volume.
pub(crate) fn claim_of(pod: &Pod, volume: &Volume) -> Option<ClaimName> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(ClaimName {
            name: source.claim_name.clone(),
            is_ephemeral: false,
            is_read_only: source.read_only == Some(true),
        });
    }
    volume.ephemeral.as_ref()?;
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    Some(ClaimName {
        name: format!("{pod}-{}", volume.name),
        is_ephemeral: true,
        is_read_only: false,
    })
}

/// The name of the volume that a claim is bound to.
pub(crate) fn bound_volume<'a>(
    pod: &Pod,
    claim: &ClaimName,
    found: Option<&'a PersistentVolumeClaim>,
) -> Result<&'a str, VolumeError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let refused = |why: &str| {
        let name = &claim.name;
        VolumeError::Invalid(format!("error processing PVC {namespace}/{name}: {why}"))
    };
    let Some(found) = found else {
        let name = &claim.name;
        let why = format!("failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found");
        return Err(refused(&why));
    };
    let owned = || {
        let mut owners = found.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
    };
    if claim.is_ephemeral && !owned() {
        return Err(refused("PVC was not created for pod (pod is not owner)"));
    }
    let mut finalizers = found.metadata.finalizers.iter().flatten();
    // A protected one stays for the pods that have it, also when they start again with their machine.
    if found.metadata.deletion_timestamp.is_some() && !finalizers.any(|own| own == PROTECTION) {
        return Err(refused("PVC is being deleted"));
    }
    let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
    let spec = found.spec.as_ref();
    let volume = spec
        .and_then(|spec| spec.volume_name.as_deref())
        .unwrap_or_default();
    if phase != Some("Bound") || volume.is_empty() {
        return Err(refused("PVC is not bound"));
    }
    if spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block") {
        return Err(refused("block volumes are not provided by this node"));
    }
    Ok(volume)
}

/// Place of a volume's content on this node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Place {
    HostPath(HostPathVolumeSource),
    /// A folder that must be there.
    Local(String),
}

/// A volume and the way to mount it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    pub(crate) place: Place,
    /// Name of the PersistentVolume.
    pub(crate) volume: String,
    pub(crate) options: Vec<String>,
    /// Supplemental group of the pod's containers.
    pub(crate) group: Option<i64>,
    pub(crate) is_read_only: bool,
}

/// The volume of a claim, once it is known to be the claim's and to be reached from this node.
pub(crate) fn checked<'a>(
    name: &str,
    claim: &PersistentVolumeClaim,
    found: Option<&'a PersistentVolume>,
    node: &ThisNode,
) -> Result<&'a PersistentVolume, VolumeError> {
    let invalid = |why: String| Err(VolumeError::Invalid(why));
    let Some(volume) = found else {
        return invalid(format!(
            "failed to get PV spec for {name}: persistentvolumes {name:?} not found"
        ));
    };
    let Some(spec) = &volume.spec else {
        return invalid(format!("PV {name} has no spec"));
    };
    let owner = spec.claim_ref.as_ref();
    let Some(uid) = owner.and_then(|owner| owner.uid.as_deref()) else {
        return invalid(format!("found PV object {name} with nil pvc"));
    };
    if Some(uid) != claim.metadata.uid.as_deref() {
        return invalid(format!("found PV object {name} with unexpected pvc UID {uid:?}"));
    }
    node.check_affinity(name, volume)?;
    Ok(volume)
}

/// Source of a checked volume on this node.
pub(crate) fn source(
    name: &str,
    wanted: &ClaimName,
    volume: &PersistentVolume,
    node: &ThisNode,
) -> Result<Source, VolumeError> {
    let spec = volume.spec.as_ref();
    let host_path = spec.and_then(|spec| spec.host_path.as_ref());
    let local = spec.and_then(|spec| spec.local.as_ref());
    let place = match (node.place(name, volume)?, host_path, local) {
        (Some(folder), ..) => Place::Local(folder),
        (_, Some(source), _) => Place::HostPath(source.clone()),
        (.., Some(source)) => Place::Local(source.path.clone()),
        _ => {
            return Err(VolumeError::Invalid(format!(
                "PV {name} has a type this node does not provide"
            )));
        }
    };
    let options = mount_options(volume);
    if matches!(place, Place::HostPath(_)) && !options.is_empty() {
        let volume = name.to_owned();
        return Err(VolumeError::MountOptions { volume });
    }
    Ok(Source {
        place,
        volume: name.to_owned(),
        options,
        group: group(volume),
        is_read_only: wanted.is_read_only,
    })
}

/// Supplemental group that a volume brings to the containers of its pods.
pub(crate) fn group(volume: &PersistentVolume) -> Option<i64> {
    let annotations = volume.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(GROUP)?.parse().ok())
}

/// Mount options of a volume, sorted as upstream's `MountOptionFromSpec`.
fn mount_options(volume: &PersistentVolume) -> Vec<String> {
    let annotations = volume.metadata.annotations.as_ref();
    let mut options: Vec<String> = match annotations.and_then(|all| all.get(MOUNT_OPTIONS)) {
        Some(text) => text.split(',').map(str::to_owned).collect(),
        None => {
            let spec = volume.spec.as_ref();
            spec.and_then(|spec| spec.mount_options.clone())
                .unwrap_or_default()
        }
    };
    options.retain(|option| !option.is_empty());
    options.sort();
    options.dedup();
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::path::Path;
    use std::sync::Arc;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pod"}})).unwrap()
    }

    fn claim(spec: &Value, phase: &str, metadata: &Value) -> PersistentVolumeClaim {
        let mut object = json!({"metadata": {"uid": "c"}, "spec": spec, "status": {"phase": phase}});
        for (name, value) in metadata.as_object().unwrap() {
            object["metadata"][name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[track_caller]
    fn check_claim(ephemeral: bool, found: Option<PersistentVolumeClaim>, expected: Result<&str, &str>) {
        let name = ClaimName {
            name: "c".to_owned(),
            is_ephemeral: ephemeral,
            is_read_only: false,
        };
        let bound = bound_volume(&pod(), &name, found.as_ref()).map_err(|error| error.to_string());
        let expected = expected.map_err(|why| format!("error processing PVC ns/c: {why}"));
        assert_eq!(bound, expected);
    }

    #[test]
    fn claim_is_used_once_it_is_bound_and_its_pods_own() {
        let (v, none) = (json!({"volumeName": "v"}), json!({}));
        check_claim(false, Some(claim(&v, "Bound", &none)), Ok("v"));
        check_claim(false, Some(claim(&v, "Pending", &none)), Err("PVC is not bound"));
        check_claim(
            false,
            Some(claim(&json!({}), "Bound", &none)),
            Err("PVC is not bound"),
        );
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        check_claim(
            false,
            Some(claim(&v, "Bound", &going)),
            Err("PVC is being deleted"),
        );
        let protected = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]});
        check_claim(false, Some(claim(&v, "Bound", &protected)), Ok("v"));
        let missing = "failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found";
        check_claim(false, None, Err(missing));
        let not_owner = "PVC was not created for pod (pod is not owner)";
        check_claim(true, Some(claim(&v, "Bound", &none)), Err(not_owner));
        let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true}]});
        check_claim(true, Some(claim(&v, "Bound", &owner)), Ok("v"));
    }

    /// Source of a volume for a claim with uid `c`.
    fn source_of(volume: &Value) -> Result<Source, String> {
        let claim = claim(&json!({"volumeName": "v"}), "Bound", &json!({}));
        let wanted = ClaimName {
            name: "c".to_owned(),
            is_ephemeral: false,
            is_read_only: false,
        };
        let volume: Option<PersistentVolume> = serde_json::from_value(volume.clone()).unwrap();
        let labelled = serde_json::from_value(
            json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "h1"}}}),
        );
        let object = Arc::new(Mutex::new(Arc::new(labelled.unwrap())));
        let own = ThisNode::new("n1", Path::new("/data/local-volumes"), object);
        checked("v", &claim, volume.as_ref(), &own)
            .and_then(|volume| source("v", &wanted, volume, &own))
            .map_err(|error| error.event("data"))
    }

    /// A maker of pods may bind them to a node past the scheduler.
    #[test]
    fn volume_of_another_node_is_not_mounted() {
        let of = |term: Value| {
            let spec = json!({"claimRef": {"uid": "c", "name": "c", "namespace": "ns"}, "local": {"path": "/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}});
            source_of(&json!({ "spec": spec })).map(|source| source.place)
        };
        let host = |name: &str| json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]});
        let own = Ok(Place::Local("/x".to_owned()));
        assert_eq!(of(host("h1")), own);
        let why = "MountVolume.NodeAffinity check failed for volume \"v\" : no matching NodeSelectorTerms";
        assert_eq!(of(host("h2")), Err(why.to_owned()));
        let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert_eq!(of(field("n1")), own);
        assert!(of(field("n2")).is_err());
    }

    /// A node says where its folder lies, and which host name it has: another node believes neither.
    #[test]
    fn volume_made_on_demand_is_mounted_from_its_own_folder_on_its_own_node_alone() {
        let mine = json!({"uid": "c", "name": "c", "namespace": "ns"});
        let of = |node: &str, place: Value| {
            let made = json!({"pv.kubernetes.io/provisioned-by": "knarr/local-path", "knarr/node": node});
            let mut spec = place;
            spec["claimRef"] = mine.clone();
            source_of(&json!({"metadata": {"annotations": made}, "spec": spec})).map(|source| source.place)
        };
        let own = Ok(Place::Local("/data/local-volumes/v".to_owned()));
        let local = |path: &str| json!({"local": {"path": path}});
        assert_eq!(of("n1", local("/data/local-volumes/v")), own);
        assert!(
            of("n2", local("/data/local-volumes/v")).is_err(),
            "another node's"
        );
        for place in [
            local("/"),
            local("/data/local-volumes/w"),
            json!({"hostPath": {"path": "/"}}),
        ] {
            assert!(of("n1", place.clone()).is_err(), "{place}");
        }
        let by = json!({"pv.kubernetes.io/provisioned-by": "knarr/local-path"});
        let spec = json!({"claimRef": mine, "local": {"path": "/data/local-volumes/v"}});
        assert!(
            source_of(&json!({"metadata": {"annotations": by}, "spec": spec})).is_err(),
            "no node"
        );
    }

    #[test]
    fn volume_that_is_not_the_claims_own_is_not_mounted() {
        let of = |spec: Value| source_of(&json!({ "spec": spec }));
        let mine = json!({"uid": "c", "name": "c", "namespace": "ns"});
        let found = of(json!({"claimRef": mine, "local": {"path": "/x"}})).unwrap();
        assert_eq!(found.place, Place::Local("/x".to_owned()));
        let other = json!({"uid": "d", "name": "c", "namespace": "ns"});
        assert!(of(json!({"claimRef": other, "hostPath": {"path": "/"}})).is_err());
        assert!(
            of(json!({"hostPath": {"path": "/"}})).is_err(),
            "a volume without a claim"
        );
        assert!(of(json!({"claimRef": mine, "nfs": {"path": "/x", "server": "s"}})).is_err());
        assert!(source_of(&Value::Null).is_err());
    }

    #[test]
    fn volume_brings_its_group_and_its_mount_options() {
        let mine = json!({"uid": "c", "name": "c", "namespace": "ns"});
        let of = |annotations: Value, place: &str| {
            let spec =
                json!({"claimRef": mine, place: {"path": "/x"}, "mountOptions": ["ro", "", "noexec", "ro"]});
            source_of(&json!({"metadata": {"annotations": annotations}, "spec": spec}))
        };
        let group = of(json!({"pv.beta.kubernetes.io/gid": "1234"}), "local").unwrap();
        assert_eq!(
            (group.group, group.options),
            (Some(1234), vec!["noexec".into(), "ro".into()])
        );
        let no_number = of(json!({"pv.beta.kubernetes.io/gid": "users"}), "local").unwrap();
        assert_eq!(no_number.group, None);
        let old = json!({"volume.beta.kubernetes.io/mount-options": "nosuid,nodev"});
        assert_eq!(of(old, "local").unwrap().options, ["nodev", "nosuid"]);
        assert_eq!(
            of(json!({}), "hostPath").unwrap_err(),
            "MountVolume.MountOptionSupport check failed for volume \"v\" : mount options are not supported for this volume type"
        );
    }
}
