//! Resources that the node is short of, as its conditions and the admission of pods have it. The eviction manager
//! ([`crate::eviction`]) decides.

/// Resources under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pressure {
    /// Memory.
    pub(crate) memory: bool,
    /// Room or inodes of the file systems that pods and images lie on.
    pub(crate) disk: bool,
    /// Process ids.
    pub(crate) pid: bool,
}

impl Pressure {
    /// The conditions that hold, by type.
    pub(crate) fn conditions(self) -> Vec<&'static str> {
        let all = [
            (self.memory, "MemoryPressure"),
            (self.disk, "DiskPressure"),
            (self.pid, "PIDPressure"),
        ];
        let held = all.into_iter().filter(|(holds, _)| *holds);
        held.map(|(_, kind)| kind).collect()
    }
}
