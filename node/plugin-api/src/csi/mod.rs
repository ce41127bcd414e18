//! The node's part of the Container Storage Interface, `v1`: a driver says what it is on this node, and shows its volumes at
//! paths of the machine.
//!
//! [`messages`] have the names and numbers of `csi.proto`, [`client`] is the agent's side of a driver, [`server`] the driver's
//! own.

pub mod client;
pub mod messages;
pub mod server;

const CAPABILITIES: &str = "/csi.v1.Node/NodeGetCapabilities";
const INFO: &str = "/csi.v1.Node/NodeGetInfo";
const STAGE: &str = "/csi.v1.Node/NodeStageVolume";
const UNSTAGE: &str = "/csi.v1.Node/NodeUnstageVolume";
const PUBLISH: &str = "/csi.v1.Node/NodePublishVolume";
const UNPUBLISH: &str = "/csi.v1.Node/NodeUnpublishVolume";
const STATS: &str = "/csi.v1.Node/NodeGetVolumeStats";
const EXPAND: &str = "/csi.v1.Node/NodeExpandVolume";
