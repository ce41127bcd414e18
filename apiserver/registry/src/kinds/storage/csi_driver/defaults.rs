//! Defaults of CSIDrivers.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.attachRequired=true",
    "spec.fsGroupPolicy=\"ReadWriteOnceWithFSType\"",
    "spec.podInfoOnMount=false",
    "spec.preventPodSchedulingIfMissing=false",
    "spec.requiresRepublish=false",
    "spec.seLinuxMount=false",
    "spec.storageCapacity=false",
    "spec.volumeLifecycleModes=[\"Persistent\"]",
];
