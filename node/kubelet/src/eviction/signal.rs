//! Signals of the node that thresholds are about. Pure.

/// Condition of a node that runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PressureKind {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`.
    Disk,
    /// `PIDPressure`.
    Pid,
}

/// Resource of the node that is reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Starved {
    /// Memory.
    Memory,
    /// Bytes of a file system.
    Storage,
    /// Inodes of a file system.
    Inodes,
    /// Process ids.
    Pids,
}

impl Starved {
    /// Upstream's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Storage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

/// Something of which the node has a certain amount left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// The machine's memory.
    MemoryAvailable,
    /// Memory that all pods together may use.
    AllocatableMemoryAvailable,
    /// Bytes of the file system of volumes and logs.
    NodeFsAvailable,
    /// Its inodes.
    NodeFsInodesFree,
    /// Bytes of the file system of images and containers.
    ImageFsAvailable,
    /// Its inodes.
    ImageFsInodesFree,
    /// Bytes of a file system of containers alone. No runtime of ours has one: thresholds of it are ignored, as upstream's.
    ContainerFsAvailable,
    /// Its inodes.
    ContainerFsInodesFree,
    /// Process ids of the machine.
    PidAvailable,
}

impl Signal {
    const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// The name that flags and metrics have of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The resource that is reclaimed for it.
    pub(crate) fn resource(self) -> Starved {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Starved::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => Starved::Storage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => Starved::Inodes,
            Self::PidAvailable => Starved::Pids,
        }
    }

    /// The node's condition while it is short.
    pub(crate) fn condition(self) -> PressureKind {
        match self.resource() {
            Starved::Memory => PressureKind::Memory,
            Starved::Storage | Starved::Inodes => PressureKind::Disk,
            Starved::Pids => PressureKind::Pid,
        }
    }

    /// Reports whether it is about a file system of containers alone.
    pub(crate) fn is_of_container_fs(self) -> bool {
        matches!(self, Self::ContainerFsAvailable | Self::ContainerFsInodesFree)
    }
}
