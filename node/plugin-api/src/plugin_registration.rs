//! The registration API of plugins, `v1`: a plugin listens at a socket in the agent's folder `plugins_registry`; the agent asks
//! it what it is, and says what has become of that.

use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;

use crate::calls::{Transport, answer, call, unknown};

/// Type of a CSI driver.
pub const CSI_PLUGIN: &str = "CSIPlugin";
/// Type of a device plugin.
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
/// Type of a driver of dynamic resource allocation.
pub const DRA_PLUGIN: &str = "DRAPlugin";

const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
/// A larger message of either side is refused.
const BYTES_MAX: usize = 64 << 10;

/// Request for a plugin's identity.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InfoRequest {}

/// A plugin's description of itself.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// [`CSI_PLUGIN`], [`DEVICE_PLUGIN`], [`DRA_PLUGIN`] or another word.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Name of the plugin: of the driver, or of the resource.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Path of the socket that it serves its own API at; empty if it is the socket of this call.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Versions of that API.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Outcome of a registration.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// The agent uses the plugin.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// The reason why it does not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatusResponse {}

/// Reads the identity of the plugin behind a transport.
///
/// # Errors
/// The status with which the call failed.
pub async fn get_info(plugin: &Transport) -> Result<PluginInfo, Status> {
    call(plugin, GET_INFO, InfoRequest {}, BYTES_MAX).await
}

/// Says to a plugin what has become of its registration.
///
/// # Errors
/// The status with which the call failed.
pub async fn notify(plugin: &Transport, status: RegistrationStatus) -> Result<(), Status> {
    let answer: Result<RegistrationStatusResponse, Status> = call(plugin, NOTIFY, status, BYTES_MAX).await;
    answer.map(drop)
}

/// A plugin that registers.
pub trait RegisteringPlugin: Clone + Send + Sync + 'static {
    /// Returns what the plugin is.
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>>;

    /// Takes in what has become of the registration.
    fn registered(&self, status: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>>;
}

/// The service of a plugin that registers.
pub fn service(plugin: impl RegisteringPlugin) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let plugin = plugin.clone();
        async move {
            Ok(match request.uri().path() {
                GET_INFO => answer(request, BYTES_MAX, |_: InfoRequest| plugin.info()).await,
                NOTIFY => {
                    let handle = |status| {
                        let taken = plugin.registered(status);
                        async move { taken.await.map(|()| RegistrationStatusResponse {}) }
                    };
                    answer(request, BYTES_MAX, handle).await
                }
                _ => unknown(),
            })
        }
    }))
}
