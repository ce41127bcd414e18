//! The device-plugin API, `v1beta1`: a plugin registers at the agent's socket, lists its devices for as long as it lives, and
//! is called before a container gets some of them.
//!
//! [`messages`] are upstream's, [`client`] is the agent's side of a plugin, [`server`] the plugin's own.

pub mod client;
pub mod messages;
pub mod server;

/// The version of the API, of which there is one.
pub const VERSION: &str = "v1beta1";
/// Health of a device that can be allocated; any other word is unhealthy.
pub const HEALTHY: &str = "Healthy";
/// Health of a device that cannot.
pub const UNHEALTHY: &str = "Unhealthy";
/// The agent's socket, in the folder of the plugins' sockets.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

const REGISTER: &str = "/v1beta1.Registration/Register";
const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
const PREFERRED: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";
