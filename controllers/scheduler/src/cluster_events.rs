//! Things that happen in a cluster and may help a pod that was rejected.

/// A set of things that happen in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ClusterEvents(u32);

impl ClusterEvents {
    pub const NONE: Self = Self(0);
    pub const NODE_ADD: Self = Self(1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 1);
    pub const NODE_LABEL: Self = Self(1 << 2);
    pub const NODE_TAINT: Self = Self(1 << 3);
    /// A pod came to a node.
    pub const POD_PLACED: Self = Self(1 << 4);
    /// A pod left a node, or its nomination to one.
    pub const POD_GONE: Self = Self(1 << 5);
    /// Labels of a pod on a node changed.
    pub const POD_LABEL: Self = Self(1 << 6);
    /// A pod that waits changed.
    pub const POD_SELF: Self = Self(1 << 7);
    pub const NODE_GONE: Self = Self(1 << 8);
    pub const NAMESPACE_LABEL: Self = Self(1 << 9);
    /// A volume came or changed.
    pub const VOLUME: Self = Self(1 << 10);
    /// A claim of the pod came or changed.
    pub const CLAIM: Self = Self(1 << 11);
    /// A storage class came, or makes volumes elsewhere.
    pub const CLASS: Self = Self(1 << 12);
    /// A storage class came whose claims wait for a pod.
    pub const CLASS_WAITS: Self = Self(1 << 13);
    /// A volume came, or its labels of zone and region changed.
    pub const VOLUME_ZONE: Self = Self(1 << 14);
    /// A CSINode came, or a limit of one was raised.
    pub const CSI_NODE: Self = Self(1 << 15);
    /// A CSIDriver does not track capacity any more.
    pub const CSI_DRIVER: Self = Self(1 << 16);
    /// More storage of a CSI driver.
    pub const CSI_CAPACITY: Self = Self(1 << 17);
    /// A volume was detached from a node.
    pub const ATTACHMENT_GONE: Self = Self(1 << 18);
    /// A pod with claims left a node.
    pub const VOLUMES_GONE: Self = Self(1 << 19);
    /// A pod that had a claim or a disk of the pod left a node.
    pub const CLAIM_FREED: Self = Self(1 << 20);
    /// Features that a node declares changed.
    pub const NODE_FEATURES: Self = Self(1 << 21);
    /// A claim of devices came or changed, or gave devices back.
    pub const DEVICE_CLAIM: Self = Self(1 << 22);
    /// A class of devices came or changed.
    pub const DEVICE_CLASS: Self = Self(1 << 23);
    /// Devices came, changed, or lost a taint.
    pub const DEVICE_SLICE: Self = Self(1 << 24);
    /// Another class of devices serves an extended resource.
    pub const CLASS_RESOURCE: Self = Self(1 << 25);
    /// A pod on a node wants less of it.
    pub const POD_SCALE_DOWN: Self = Self(1 << 26);
    pub const NODE_CONDITION: Self = Self(1 << 27);
    pub const NODE_ANNOTATION: Self = Self(1 << 28);
    /// An event without a class.
    pub const ANY: Self = Self(u32::MAX);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The events one by one; [`Self::ANY`] is one of its own.
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        let own = if self == Self::ANY { 1 << ANY_BIT } else { self.0 };
        (0..=ANY_BIT)
            .map(|bit| Self(1 << bit))
            .filter(move |one| own & one.0 != 0)
    }

    /// The place of [`Self::ANY`] among those of [`Self::each`].
    pub(crate) const fn of_any() -> Self {
        Self(1 << ANY_BIT)
    }

    /// Upstream's label of the first of them.
    pub fn label(self) -> &'static str {
        let first = usize::try_from(self.0.trailing_zeros()).unwrap_or(usize::MAX);
        LABELS.get(first).copied().unwrap_or("*")
    }
}

/// A bit that no class of events has.
const ANY_BIT: u32 = 31;

/// Labels of [`ClusterEvents`], in the order of their bits.
const LABELS: [&str; 29] = [
    "NodeAdd",
    "NodeUpdateNodeAllocatable",
    "NodeUpdateNodeLabel",
    "NodeUpdateNodeTaint",
    "AssignedPodAdd",
    "AssignedPodDelete",
    "AssignedPodUpdatePodLabel",
    "TargetPodUpdate",
    "NodeDelete",
    "NamespaceUpdate",
    "PersistentVolumeAdd",
    "PersistentVolumeClaimAdd",
    "StorageClassAdd",
    "StorageClassAdd",
    "PersistentVolumeUpdate",
    "CSINodeAdd",
    "CSIDriverUpdate",
    "CSIStorageCapacityAdd",
    "VolumeAttachmentDelete",
    "AssignedPodDelete",
    "AssignedPodDelete",
    "NodeUpdateNodeDeclaredFeature",
    "ResourceClaimUpdate",
    "DeviceClassUpdate",
    "ResourceSliceUpdate",
    "DeviceClassUpdate",
    "AssignedPodUpdatePodScaleDown",
    "NodeUpdateNodeCondition",
    "NodeUpdateNodeAnnotation",
];
