//! The pod-resources API, `v1`: which container has which devices. The agent serves it for programs that watch devices.

use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;

use crate::calls::{Transport, answer, call, unknown};

/// The agent's socket, in a folder of its own.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

const LIST: &str = "/v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
const GET: &str = "/v1.PodResourcesLister/Get";
/// A larger question is refused.
const CALL_BYTES_MAX: usize = 64 << 10;
/// A larger answer is refused.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Requests what all pods have.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListPodResourcesRequest {}

/// Resources of all pods.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodResourcesResponse {
    /// By pod.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// Requests what there is to be had.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AllocatableResourcesRequest {}

/// Resources that pods can have.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocatableResourcesResponse {
    /// Healthy devices, whether a pod has them or not.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<ContainerDevices>,
    /// Processors.
    #[prost(int64, repeated, tag = "2")]
    pub cpu_ids: Vec<i64>,
    /// Memory of NUMA nodes.
    #[prost(message, repeated, tag = "3")]
    pub memory: Vec<ContainerMemory>,
}

/// Requests what one pod has.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetPodResourcesRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    pub pod_name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub pod_namespace: String,
}

/// Resources of one pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetPodResourcesResponse {
    /// The pod.
    #[prost(message, optional, tag = "1")]
    pub pod_resources: Option<PodResources>,
}

/// Resources of a pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// By container.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// Resources of a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its devices.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Processors that are its own.
    #[prost(int64, repeated, tag = "3")]
    pub cpu_ids: Vec<i64>,
    /// Memory that is its own.
    #[prost(message, repeated, tag = "4")]
    pub memory: Vec<ContainerMemory>,
}

/// Memory of one kind.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerMemory {
    /// The kind: `memory`, or huge pages of some size.
    #[prost(string, tag = "1")]
    pub memory_type: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// NUMA nodes of which it is.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<crate::device_plugin::messages::TopologyInfo>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerDevices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// The devices.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
    /// Their place in the machine.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<crate::device_plugin::messages::TopologyInfo>,
}

/// A source of the answers.
pub trait PodResourcesLister: Clone + Send + Sync + 'static {
    /// Returns what all pods have.
    fn list(&self) -> BoxFuture<'static, Result<ListPodResourcesResponse, Status>>;

    /// Returns what there is to be had.
    fn allocatable(&self) -> BoxFuture<'static, Result<AllocatableResourcesResponse, Status>>;

    /// Returns what one pod has.
    fn get(
        &self,
        message: GetPodResourcesRequest,
    ) -> BoxFuture<'static, Result<GetPodResourcesResponse, Status>>;
}

/// The service over a source.
pub fn service(lister: impl PodResourcesLister) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let lister = lister.clone();
        async move {
            Ok(match request.uri().path() {
                LIST => {
                    answer(request, CALL_BYTES_MAX, |_: ListPodResourcesRequest| {
                        lister.list()
                    })
                    .await
                }
                ALLOCATABLE => {
                    let handle = |_: AllocatableResourcesRequest| lister.allocatable();
                    answer(request, CALL_BYTES_MAX, handle).await
                }
                GET => answer(request, CALL_BYTES_MAX, |message| lister.get(message)).await,
                _ => unknown(),
            })
        }
    }))
}

/// Lists the resources of all pods of an agent.
///
/// # Errors
/// The status with which the call failed.
pub async fn list(agent: &Transport) -> Result<ListPodResourcesResponse, Status> {
    call(agent, LIST, ListPodResourcesRequest {}, ANSWER_BYTES_MAX).await
}

/// Reads the allocatable resources of an agent.
///
/// # Errors
/// The status with which the call failed.
pub async fn allocatable(agent: &Transport) -> Result<AllocatableResourcesResponse, Status> {
    call(
        agent,
        ALLOCATABLE,
        AllocatableResourcesRequest {},
        ANSWER_BYTES_MAX,
    )
    .await
}

/// Reads the resources of one pod of an agent.
///
/// # Errors
/// The agent has no such pod, or the status with which the call failed.
pub async fn get(
    agent: &Transport,
    message: GetPodResourcesRequest,
) -> Result<GetPodResourcesResponse, Status> {
    call(agent, GET, message, ANSWER_BYTES_MAX).await
}
