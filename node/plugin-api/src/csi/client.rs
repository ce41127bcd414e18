//! Calls of the agent to a driver.

use tonic::Status;

use super::messages::{
    Empty, NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesResponse,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use super::{CAPABILITIES, EXPAND, INFO, PUBLISH, STAGE, STATS, UNPUBLISH, UNSTAGE};
use crate::calls::{Transport, call};

/// A larger answer of a driver is refused.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// A driver, as the agent calls it. Cheap to clone. Deadlines are the caller's.
#[derive(Debug, Clone)]
pub struct NodeClient(Transport);

/// As of every call of [`NodeClient`]: an error is the status with which the call failed.
impl NodeClient {
    /// The driver behind a transport.
    pub fn new(transport: Transport) -> Self {
        Self(transport)
    }

    /// Returns what the driver is on this node.
    ///
    /// # Errors
    /// The call failed.
    pub async fn info(&self) -> Result<NodeGetInfoResponse, Status> {
        call(&self.0, INFO, Empty {}, ANSWER_BYTES_MAX).await
    }

    /// Returns what the driver can do.
    ///
    /// # Errors
    /// The call failed.
    pub async fn capabilities(&self) -> Result<NodeGetCapabilitiesResponse, Status> {
        call(&self.0, CAPABILITIES, Empty {}, ANSWER_BYTES_MAX).await
    }

    /// Shows a volume once for all pods.
    ///
    /// # Errors
    /// The call failed.
    pub async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let answer: Result<Empty, Status> = call(&self.0, STAGE, request, ANSWER_BYTES_MAX).await;
        answer.map(drop)
    }

    /// Takes a staged volume away.
    ///
    /// # Errors
    /// The call failed.
    pub async fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<(), Status> {
        let answer: Result<Empty, Status> = call(&self.0, UNSTAGE, request, ANSWER_BYTES_MAX).await;
        answer.map(drop)
    }

    /// Shows a volume to a pod.
    ///
    /// # Errors
    /// The call failed.
    pub async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let answer: Result<Empty, Status> = call(&self.0, PUBLISH, request, ANSWER_BYTES_MAX).await;
        answer.map(drop)
    }

    /// Takes a volume away from a pod.
    ///
    /// # Errors
    /// The call failed.
    pub async fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let answer: Result<Empty, Status> = call(&self.0, UNPUBLISH, request, ANSWER_BYTES_MAX).await;
        answer.map(drop)
    }

    /// Returns the usage of a volume.
    ///
    /// # Errors
    /// The call failed.
    pub async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        call(&self.0, STATS, request, ANSWER_BYTES_MAX).await
    }

    /// Makes a volume as large as it has become elsewhere.
    ///
    /// # Errors
    /// The call failed.
    pub async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<NodeExpandVolumeResponse, Status> {
        call(&self.0, EXPAND, request, ANSWER_BYTES_MAX).await
    }
}
