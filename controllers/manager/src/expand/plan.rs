//! The one that expands the volume of a claim: pure.

use crate::volume_binder::views::{ClaimView, PRE_RESIZE_CAPACITY, VolumeView};
use machinery_client::Object;
use serde_json::Value;

/// The annotation of a claim that names the driver whose resizer expands its volume.
pub(super) const RESIZER: &str = crate::volume_binder::views::RESIZER;

/// Sources of volumes whose plugins have become drivers of CSI, with the plugins' names and the drivers' (upstream's
/// `csi-translation-lib`).
const MIGRATED: [(&str, &str, &str); 7] = [
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com"),
    ("cinder", "kubernetes.io/cinder", "cinder.csi.openstack.org"),
    (
        "gcePersistentDisk",
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
    ),
    (
        "portworxVolume",
        "kubernetes.io/portworx-volume",
        "pxd.portworx.com",
    ),
    (
        "vsphereVolume",
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
    ),
];

/// Step that follows for a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It has what it requests.
    Nothing,
    /// Another expands it.
    Wait,
    /// The driver that has taken the plugin's place expands it.
    Migrate {
        plugin: &'static str,
        driver: &'static str,
    },
}

/// The step for a claim and the volume that it names.
pub(super) fn of_claim(
    claim: &Object<ClaimView>,
    volume: Option<&Object<VolumeView>>,
) -> Result<Step, String> {
    let Some(volume) = volume else {
        return Err(format!("failed to get PV {:?}", claim.volume));
    };
    let bound = volume.claim.as_ref();
    if bound.is_none_or(|own| *own.namespace != *claim.namespace() || *own.uid != *claim.uid().0) {
        let key = claim.key();
        return Err(format!(
            "persistent Volume is not bound to PVC being updated : {key}"
        ));
    }
    if claim.request <= claim.capacity && !volume.annotations.contains_key(PRE_RESIZE_CAPACITY) {
        return Ok(Step::Nothing);
    }
    let object: Value = volume.decode().map_err(|error| error.to_string())?;
    let migrated = MIGRATED
        .iter()
        .find(|(source, ..)| !object["spec"][source].is_null());
    Ok(migrated.map_or(Step::Wait, |(_, plugin, driver)| Step::Migrate { plugin, driver }))
}
