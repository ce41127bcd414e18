//! persistentVolumeClaim: what the volume behind a claim is on this node, and its mount below the pod's folder.
//!
//! A claim leads to a path of the machine only by way of a PersistentVolume, which administrators and provisioners write:
//! the claim must be bound to it, and it to the claim by uid.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume,
};
use node_sys::mount::Mounter;

use crate::{VolumeError, host_path};

/// A claim of a pod's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimName {
    pub(crate) name: String,
    /// Made for the pod itself, which must own it.
    pub(crate) is_ephemeral: bool,
}

/// The claim behind a volume.
pub(crate) fn claim_of(pod: &Pod, volume: &Volume) -> Option<ClaimName> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(ClaimName {
            name: source.claim_name.clone(),
            is_ephemeral: false,
        });
    }
    volume.ephemeral.as_ref()?;
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    Some(ClaimName {
        name: format!("{pod}-{}", volume.name),
        is_ephemeral: true,
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
    if found.metadata.deletion_timestamp.is_some() {
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

/// Part of a volume that is mounted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    HostPath(HostPathVolumeSource),
    /// A folder that must be there.
    Local(String),
}

/// Source of a volume on this node, once it is known to be the claim's.
pub(crate) fn source(
    name: &str,
    claim: &PersistentVolumeClaim,
    found: Option<&PersistentVolume>,
) -> Result<Source, VolumeError> {
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
    match (&spec.host_path, &spec.local) {
        (Some(source), _) => Ok(Source::HostPath(source.clone())),
        (_, Some(source)) => Ok(Source::Local(source.path.clone())),
        _ => invalid(format!("PV {name} has a type this node does not provide")),
    }
}

/// Mounts it. Blocks.
pub(crate) fn set_up(
    mounter: &dyn Mounter,
    target: &Path,
    source: &Source,
    group: Option<u32>,
) -> Result<(), VolumeError> {
    if mounter.is_mount_point(target)? {
        return Ok(());
    }
    let (from, group) = match source {
        Source::HostPath(source) => (host_path::set_up(source)?, None),
        Source::Local(path) => (local(path)?, group),
    };
    let found = std::fs::metadata(&from).map_err(VolumeError::io("looking for", &from))?;
    if found.is_dir() {
        std::fs::create_dir_all(target).map_err(VolumeError::io("making", target))?;
    } else {
        let parent = target.parent().unwrap_or(target);
        std::fs::create_dir_all(parent).map_err(VolumeError::io("making", parent))?;
        std::fs::File::create(target).map_err(VolumeError::io("making", target))?;
    }
    if let Some(group) = group {
        node_sys::fs::give_to_group(&from, group, false)
            .map_err(VolumeError::io("giving to its group", &from))?;
    }
    Ok(mounter.bind_apart(&from, target)?)
}

fn local(path: &str) -> Result<PathBuf, VolumeError> {
    let from = PathBuf::from(path);
    let is_plain = |part| !matches!(part, std::path::Component::ParentDir);
    if !from.is_absolute() || !from.components().all(is_plain) {
        return Err(VolumeError::Invalid(format!(
            "path {path:?} of a local volume is not absolute and plain"
        )));
    }
    match std::fs::metadata(&from) {
        Ok(found) if found.is_dir() => Ok(from),
        Ok(_) => Err(VolumeError::Invalid(format!("path {path:?} is no directory"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(VolumeError::Invalid(format!("path {path:?} does not exist")))
        }
        Err(error) => Err(VolumeError::io("looking for", &from)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        let missing = "failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found";
        check_claim(false, None, Err(missing));
        let not_owner = "PVC was not created for pod (pod is not owner)";
        check_claim(true, Some(claim(&v, "Bound", &none)), Err(not_owner));
        let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true}]});
        check_claim(true, Some(claim(&v, "Bound", &owner)), Ok("v"));
    }

    #[test]
    fn volume_that_is_not_the_claims_own_is_not_mounted() {
        let claim = claim(&json!({"volumeName": "v"}), "Bound", &json!({}));
        let volume = |spec: Value| serde_json::from_value::<PersistentVolume>(json!({"spec": spec})).unwrap();
        let of = |spec: Value| source("v", &claim, Some(&volume(spec))).map_err(|error| error.to_string());
        let mine = json!({"uid": "c", "name": "c", "namespace": "ns"});
        assert_eq!(
            of(json!({"claimRef": mine, "local": {"path": "/x"}})),
            Ok(Source::Local("/x".to_owned()))
        );
        let other = json!({"uid": "d", "name": "c", "namespace": "ns"});
        assert!(of(json!({"claimRef": other, "hostPath": {"path": "/"}})).is_err());
        assert!(
            of(json!({"hostPath": {"path": "/"}})).is_err(),
            "a volume without a claim"
        );
        assert!(of(json!({"claimRef": mine, "nfs": {"path": "/x", "server": "s"}})).is_err());
        assert!(source("v", &claim, None).is_err());
    }

    #[test]
    fn local_volume_is_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        assert_eq!(local(&path).unwrap(), folder.path());
        for wrong in ["relative", &format!("{path}/../x"), &format!("{path}/missing")] {
            local(wrong).unwrap_err();
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        local(&format!("{path}/file")).unwrap_err();
    }
}
