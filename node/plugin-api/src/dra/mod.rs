//! The API of drivers of dynamic resource allocation, `v1` and `v1beta1`: a driver prepares ResourceClaims on a node before a
//! pod that uses them starts, and takes that back after the last such pod has ended.
//!
//! [`messages`] have the names and numbers of upstream's `api.proto`, which both versions share, [`client`] is the agent's side of a
//! driver, [`server`] the driver's own.

pub mod client;
pub mod messages;
pub mod server;

/// A version of the service that prepares claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraService {
    /// `v1`.
    V1,
    /// `v1beta1`: without share ids.
    V1Beta1,
}

impl DraService {
    /// All of them, the newest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// Name of the service among the versions of a plugin that registers.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }

    /// Path of the call that prepares claims.
    pub fn prepare(self) -> &'static str {
        match self {
            Self::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            Self::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        }
    }

    /// Path of the call that takes that back.
    pub fn unprepare(self) -> &'static str {
        match self {
            Self::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            Self::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        }
    }
}
