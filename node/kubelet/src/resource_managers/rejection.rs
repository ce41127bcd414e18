//! Reasons for which a pod cannot have what it requests.

/// A request that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// Not with whole cores.
    #[error("{0}")]
    SmtAlignment(String),
    /// Not of NUMA nodes that the policy allows.
    #[error("Resources cannot be allocated with Topology locality")]
    TopologyAffinity,
    /// For a reason that the scheduler should have known.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(String),
}

impl AllocationError {
    /// Reason of the rejected pod, upstream's.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::SmtAlignment(_) => "SMTAlignmentError",
            Self::TopologyAffinity => "TopologyAffinityError",
            Self::Unexpected(_) => "UnexpectedAdmissionError",
        }
    }
}
