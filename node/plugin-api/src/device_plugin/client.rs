//! Calls of the agent to a plugin, and of a plugin to the agent.

use tonic::{Status, Streaming};

use super::messages::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerPreferredAllocationRequest,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
use super::{ALLOCATE, LIST_AND_WATCH, OPTIONS, PRE_START, PREFERRED, REGISTER};
use crate::calls::{Transport, call, follow};

/// A larger list of devices is refused; gRPC's own default.
const LIST_BYTES_MAX: usize = 4 << 20;
/// Any other answer of a plugin that is larger is refused.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A plugin, as the agent calls it. Cheap to clone. Deadlines are the caller's.
#[derive(Debug, Clone)]
pub struct PluginClient(Transport);

impl PluginClient {
    /// The plugin behind a transport.
    pub fn new(transport: Transport) -> Self {
        Self(transport)
    }

    /// Returns the optional calls that the plugin wants.
    ///
    /// # Errors
    /// As of every call: the status with which it failed.
    pub async fn options(&self) -> Result<DevicePluginOptions, Status> {
        call(&self.0, OPTIONS, Empty {}, ANSWER_BYTES_MAX).await
    }

    /// Returns the plugin's devices, now and after each change.
    ///
    /// # Errors
    /// The status with which the call failed.
    pub async fn list_and_watch(&self) -> Result<Streaming<ListAndWatchResponse>, Status> {
        follow(&self.0, LIST_AND_WATCH, Empty {}, LIST_BYTES_MAX).await
    }

    /// Returns the devices that suit one container best, in the order in which they are to be taken.
    ///
    /// # Errors
    /// The status with which the call failed.
    pub async fn preferred(
        &self,
        request: ContainerPreferredAllocationRequest,
    ) -> Result<Vec<String>, Status> {
        let container_requests = vec![request];
        let request = PreferredAllocationRequest { container_requests };
        let answer: PreferredAllocationResponse = call(&self.0, PREFERRED, request, LIST_BYTES_MAX).await?;
        let first = answer.container_responses.into_iter().next();
        Ok(first.map(|first| first.device_ids).unwrap_or_default())
    }

    /// Gives devices to one container.
    ///
    /// # Errors
    /// The status with which the call failed.
    pub async fn allocate(&self, devices_ids: Vec<String>) -> Result<AllocateResponse, Status> {
        let container_requests = vec![ContainerAllocateRequest { devices_ids }];
        call(
            &self.0,
            ALLOCATE,
            AllocateRequest { container_requests },
            ANSWER_BYTES_MAX,
        )
        .await
    }

    /// Says that a container with these devices is about to start.
    ///
    /// # Errors
    /// The status with which the call failed.
    pub async fn pre_start(&self, devices_ids: Vec<String>) -> Result<(), Status> {
        let request = PreStartContainerRequest { devices_ids };
        let answer: Result<PreStartContainerResponse, Status> =
            call(&self.0, PRE_START, request, ANSWER_BYTES_MAX).await;
        answer.map(drop)
    }
}

/// Registers a plugin at an agent.
///
/// # Errors
/// The agent refuses it, and says why.
pub async fn register(agent: &Transport, request: RegisterRequest) -> Result<(), Status> {
    let answer: Result<Empty, Status> = call(agent, REGISTER, request, ANSWER_BYTES_MAX).await;
    answer.map(drop)
}
