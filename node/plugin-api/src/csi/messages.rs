//! Messages, with the field numbers of `csi.proto`.
//!
//! Requests that carry secrets show no value of theirs when they are printed.

use std::collections::BTreeMap;
use std::fmt;

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Abilities of a driver on a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetCapabilitiesResponse {
    /// One by one.
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<NodeServiceCapability>,
}

/// An ability.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NodeServiceCapability {
    /// A call that the driver has.
    #[prost(message, optional, tag = "1")]
    pub rpc: Option<NodeRpc>,
}

/// A call of the node's service that not every driver has.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NodeRpc {
    /// One of [`NodeRpcType`].
    #[prost(enumeration = "NodeRpcType", tag = "1")]
    pub r#type: i32,
}

/// Calls that not every driver has, and ways of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NodeRpcType {
    /// None.
    Unknown = 0,
    /// Volumes are staged once for a node.
    StageUnstageVolume = 1,
    /// Usage of volumes.
    GetVolumeStats = 2,
    /// Growth of volumes.
    ExpandVolume = 3,
    /// Health of volumes.
    VolumeCondition = 4,
    /// It knows volumes of one pod from those of one node.
    SingleNodeMultiWriter = 5,
    /// It gives files to a group itself.
    VolumeMountGroup = 6,
}

/// A driver on a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetInfoResponse {
    /// The node's name, as the driver knows it.
    #[prost(string, tag = "1")]
    pub node_id: String,
    /// Volumes of the driver that the node can have; 0 says nothing.
    #[prost(int64, tag = "2")]
    pub max_volumes_per_node: i64,
    /// Place of the node.
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

/// A place.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Topology {
    /// By key.
    #[prost(btree_map = "string, string", tag = "1")]
    pub segments: BTreeMap<String, String>,
}

/// Use of a volume.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeCapability {
    /// As a device or as files.
    #[prost(oneof = "AccessType", tags = "1, 2")]
    pub access_type: Option<AccessType>,
    /// By how many.
    #[prost(message, optional, tag = "3")]
    pub access_mode: Option<AccessMode>,
}

/// Form of a volume.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum AccessType {
    /// A device.
    #[prost(message, tag = "1")]
    Block(Empty),
    /// Files.
    #[prost(message, tag = "2")]
    Mount(MountVolume),
}

/// A volume of files.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MountVolume {
    /// Kind of file system; empty leaves it to the driver.
    #[prost(string, tag = "1")]
    pub fs_type: String,
    /// Mount options.
    #[prost(string, repeated, tag = "2")]
    pub mount_flags: Vec<String>,
    /// Group that the files are to belong to.
    #[prost(string, tag = "3")]
    pub volume_mount_group: String,
}

/// Readers and writers of a volume.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AccessMode {
    /// One of [`AccessModeType`].
    #[prost(enumeration = "AccessModeType", tag = "1")]
    pub mode: i32,
}

/// Readers and writers of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AccessModeType {
    /// Not known.
    Unknown = 0,
    /// One node writes.
    SingleNodeWriter = 1,
    /// One node reads.
    SingleNodeReaderOnly = 2,
    /// Many nodes read.
    MultiNodeReaderOnly = 3,
    /// One node writes, many read.
    MultiNodeSingleWriter = 4,
    /// Many nodes write.
    MultiNodeMultiWriter = 5,
    /// One pod writes.
    SingleNodeSingleWriter = 6,
    /// Pods of one node write.
    SingleNodeMultiWriter = 7,
}

/// Shows a volume once for all pods of the node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct NodeStageVolumeRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Answer of the driver to the attachment of the volume.
    #[prost(btree_map = "string, string", tag = "2")]
    pub publish_context: BTreeMap<String, String>,
    /// Place, a folder that is there.
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    /// Use of the volume.
    #[prost(message, optional, tag = "4")]
    pub volume_capability: Option<VolumeCapability>,
    /// Secrets, by name.
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: BTreeMap<String, String>,
    /// Attributes of the volume.
    #[prost(btree_map = "string, string", tag = "6")]
    pub volume_context: BTreeMap<String, String>,
}

/// Takes a staged volume away.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnstageVolumeRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Its place.
    #[prost(string, tag = "2")]
    pub staging_target_path: String,
}

/// Shows a volume to one pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct NodePublishVolumeRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Answer of the driver to the attachment of the volume.
    #[prost(btree_map = "string, string", tag = "2")]
    pub publish_context: BTreeMap<String, String>,
    /// Place where the volume is staged, where it is.
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    /// Place, in a folder that is there.
    #[prost(string, tag = "4")]
    pub target_path: String,
    /// Use of the volume.
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
    /// The pod only reads.
    #[prost(bool, tag = "6")]
    pub readonly: bool,
    /// Secrets, by name.
    #[prost(btree_map = "string, string", tag = "7")]
    pub secrets: BTreeMap<String, String>,
    /// Attributes of the volume, and of the pod, tokens of which among them.
    #[prost(btree_map = "string, string", tag = "8")]
    pub volume_context: BTreeMap<String, String>,
}

/// Takes a volume away from a pod.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnpublishVolumeRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Its place.
    #[prost(string, tag = "2")]
    pub target_path: String,
}

/// Requests the usage of a volume.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetVolumeStatsRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Its place.
    #[prost(string, tag = "2")]
    pub volume_path: String,
    /// Place where it is staged.
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
}

/// Usage of a volume.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetVolumeStatsResponse {
    /// One for each unit.
    #[prost(message, repeated, tag = "1")]
    pub usage: Vec<VolumeUsage>,
    /// Health, where the driver says it.
    #[prost(message, optional, tag = "2")]
    pub volume_condition: Option<VolumeCondition>,
}

/// Usage of a volume in one unit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct VolumeUsage {
    /// Left.
    #[prost(int64, tag = "1")]
    pub available: i64,
    /// All.
    #[prost(int64, tag = "2")]
    pub total: i64,
    /// Used.
    #[prost(int64, tag = "3")]
    pub used: i64,
    /// One of [`UsageUnit`].
    #[prost(enumeration = "UsageUnit", tag = "4")]
    pub unit: i32,
}

/// Unit of a usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum UsageUnit {
    /// Not known.
    Unknown = 0,
    /// Bytes.
    Bytes = 1,
    /// Files.
    Inodes = 2,
}

/// Health of a volume.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeCondition {
    /// It is ill.
    #[prost(bool, tag = "1")]
    pub abnormal: bool,
    /// In words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Makes a volume as large as it has become elsewhere.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct NodeExpandVolumeRequest {
    /// The volume, as the driver knows it.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Its place.
    #[prost(string, tag = "2")]
    pub volume_path: String,
    /// The size that it is to have.
    #[prost(message, optional, tag = "3")]
    pub capacity_range: Option<CapacityRange>,
    /// Place where it is staged.
    #[prost(string, tag = "4")]
    pub staging_target_path: String,
    /// Use of the volume.
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
    /// Secrets, by name.
    #[prost(btree_map = "string, string", tag = "6")]
    pub secrets: BTreeMap<String, String>,
}

/// A size.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CapacityRange {
    /// At least.
    #[prost(int64, tag = "1")]
    pub required_bytes: i64,
    /// At most.
    #[prost(int64, tag = "2")]
    pub limit_bytes: i64,
}

/// The size that a volume has.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NodeExpandVolumeResponse {
    /// In bytes; 0 says nothing.
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
}

impl fmt::Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("target_path", &self.target_path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .finish_non_exhaustive()
    }
}
