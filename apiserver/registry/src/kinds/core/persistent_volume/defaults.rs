//! Defaults of PersistentVolumes.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.persistentVolumeReclaimPolicy=\"Retain\"",
    "spec.volumeMode=\"Filesystem\"",
    "status.phase=\"Pending\"",
    "spec.hostPath.type=\"\"",
    "spec.iscsi.iscsiInterface=\"default\"",
    "spec.rbd.keyring=\"/etc/ceph/keyring\"",
    "spec.rbd.pool=\"rbd\"",
    "spec.rbd.user=\"admin\"",
    "spec.scaleIO.fsType=\"xfs\"",
    "spec.scaleIO.storageMode=\"ThinProvisioned\"",
    "spec.azureDisk.cachingMode=\"ReadWrite\"",
    "spec.azureDisk.fsType=\"ext4\"",
    "spec.azureDisk.kind=\"Shared\"",
    "spec.azureDisk.readOnly=false",
];
