//! Checks of volumes, by their sources.

use super::Verdict;
use crate::evaluation::Violation;
use crate::pod::Pod;
use crate::wording::{counted, quoted};
use k8s_openapi::api::core::v1::Volume;
use std::collections::BTreeSet;

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Verdict {
    let volumes = pod.spec.volumes.iter().flatten();
    let volumes = volumes.filter(|own| own.host_path.is_some());
    let names: Vec<&str> = volumes.map(|own| own.name.as_str()).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "hostPath volumes",
        detail: format!("{} {}", counted(names.len(), "volume", "volumes"), quoted(&names)),
    })
}

pub(super) fn restricted_volumes(pod: &Pod<'_>) -> Verdict {
    let volumes = pod.spec.volumes.iter().flatten().filter(|own| !is_allowed(own));
    let (names, types): (Vec<&str>, BTreeSet<&str>) = volumes
        .map(|own| (own.name.as_str(), forbidden_type(own)))
        .unzip();
    let (one, noun) = (names.len(), counted(names.len(), "volume", "volumes"));
    let kinds = counted(types.len(), "restricted volume type", "restricted volume types");
    (!names.is_empty()).then(|| Violation {
        reason: "restricted volume types",
        detail: format!(
            "{noun} {} {} {kinds} {}",
            quoted(&names),
            counted(one, "uses", "use"),
            quoted(types)
        ),
    })
}

fn is_allowed(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.csi.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some()
}

/// The field of a volume's source; `unknown` where there is none.
fn forbidden_type(volume: &Volume) -> &'static str {
    let sources = [
        ("hostPath", volume.host_path.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("fc", volume.fc.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
    ];
    let found = sources.into_iter().find(|(_, is_set)| *is_set);
    found.map_or("unknown", |(name, _)| name)
}
