//! Calls of the agent to a driver.

use tonic::Status;

use super::DraService;
use super::messages::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use crate::calls::{Transport, call};

/// A larger answer of a driver is refused; a device of no fields takes two bytes of it and a hundred of memory.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A driver, as the agent calls it. Cheap to clone. Deadlines are the caller's.
#[derive(Debug, Clone)]
pub struct DraClient {
    transport: Transport,
    service: DraService,
}

impl DraClient {
    /// The driver behind a transport, which has this version of the service.
    pub fn new(transport: Transport, service: DraService) -> Self {
        Self { transport, service }
    }

    /// Prepares claims.
    ///
    /// # Errors
    /// The status with which the call failed; what becomes of each claim is in the answer.
    pub async fn prepare(&self, claims: Vec<Claim>) -> Result<NodePrepareResourcesResponse, Status> {
        let (path, message) = (self.service.prepare(), NodePrepareResourcesRequest { claims });
        let mut answer: NodePrepareResourcesResponse =
            call(&self.transport, path, message, ANSWER_BYTES_MAX).await?;
        if self.service == DraService::V1Beta1 {
            let devices = answer.claims.values_mut().flat_map(|own| &mut own.devices);
            devices.for_each(|device| device.share_id = None);
        }
        Ok(answer)
    }

    /// Takes the preparation of claims back.
    ///
    /// # Errors
    /// The status with which the call failed; what becomes of each claim is in the answer.
    pub async fn unprepare(&self, claims: Vec<Claim>) -> Result<NodeUnprepareResourcesResponse, Status> {
        let (path, message) = (self.service.unprepare(), NodeUnprepareResourcesRequest { claims });
        call(&self.transport, path, message, ANSWER_BYTES_MAX).await
    }
}
