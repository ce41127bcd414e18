//! Messages, with upstream's field numbers.

use std::collections::HashMap;

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Optional calls that a plugin wants.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DevicePluginOptions {
    /// It is called before each start of a container.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// It has preferences among its devices.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// A plugin says that it is there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterRequest {
    /// Version of the API that it speaks.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of its socket, beside the agent's.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// The resource that its devices are of.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// Optional calls that it wants.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// All devices of a plugin.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListAndWatchResponse {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// Its name among those of the plugin.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`super::HEALTHY`] or another word.
    #[prost(string, tag = "2")]
    pub health: String,
    /// Its place in the machine.
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// Place in the machine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TopologyInfo {
    /// NUMA nodes that are near.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NumaNode {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Request for the devices that are best for some containers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationRequest {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// The same for one container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationRequest {
    /// Devices to choose from.
    #[prost(string, repeated, tag = "1")]
    pub available_device_ids: Vec<String>,
    /// Devices that it has already.
    #[prost(string, repeated, tag = "2")]
    pub must_include_device_ids: Vec<String>,
    /// Number of devices that it is to have.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// Devices that are best.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreferredAllocationResponse {
    /// By container, in the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerPreferredAllocationResponse>,
}

/// The same for one container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerPreferredAllocationResponse {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub device_ids: Vec<String>,
}

/// Gives devices to containers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AllocateRequest {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

/// The same for one container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAllocateRequest {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// Parts of containers that make their devices usable.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateResponse {
    /// By container, in the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// The same for one container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerAllocateResponse {
    /// Variables of its environment.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
    /// Files of the machine that it sees.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
    /// Device files that it may use.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceSpec>,
    /// Annotations for the container runtime.
    #[prost(map = "string, string", tag = "4")]
    pub annotations: HashMap<String, String>,
    /// Devices of the Container Device Interface.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// Files of the machine in a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the machine.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// They cannot be changed there.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A device file in a container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceSpec {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the machine.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// `r`, `w` and `m`: reading, writing, making such files.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// A device of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    /// `vendor.com/class=name`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A container with these devices is about to start.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreStartContainerRequest {
    /// The devices.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// The permission to start.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PreStartContainerResponse {}
