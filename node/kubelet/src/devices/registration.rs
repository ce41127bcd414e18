//! Registration of plugins at the agent's socket. Words of refusals are upstream's.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use node_plugin_api::calls::rpc_text;
use node_plugin_api::device_plugin::client::PluginClient;
use node_plugin_api::device_plugin::messages::RegisterRequest;
use node_plugin_api::device_plugin::server::registration;
use node_plugin_api::device_plugin::{KUBELET_SOCKET, VERSION};
use tonic::Status;

use super::PLUGINS_MAX;
use super::inventory::is_extended_resource;
use super::manager::DeviceManager;
use super::plugin::watch;
use crate::managers::ManagerContext;
use crate::plugins::calls::within;

/// A plugin must answer in this time, as upstream's must let itself be connected to.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries to serve the socket.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A longer path is no socket's.
const SOCKET_BYTES_MAX: usize = 107;

/// Serves the agent's socket for ever.
pub(crate) async fn serve(context: ManagerContext) {
    let devices = context.workers.devices.clone();
    let socket = devices.folder().join(KUBELET_SOCKET);
    if let Err(error) = devices.sockets().clean(devices.folder()).await {
        tracing::error!(%error, folder = %devices.folder().display(), "sockets of device plugins not removed");
    }
    loop {
        let own = devices.clone();
        let service = registration(move |request| Box::pin(register(own.clone(), request)));
        if let Err(error) = devices.sockets().serve(&socket, service).await {
            tracing::error!(%error, socket = %socket.display(), "device plugins cannot register");
        }
        context.runtime.sleep(AGAIN_AFTER).await;
    }
}

/// Registers a plugin, and follows its devices from then on.
pub(super) async fn register(devices: Arc<DeviceManager>, request: RegisterRequest) -> Result<(), Status> {
    let resource = request.resource_name.clone();
    let outcome = connect(&devices, &request).await;
    if let Err(refusal) = &outcome {
        let resource: String = resource.escape_debug().take(256).collect();
        tracing::error!(
            resource,
            error = refusal.message(),
            "device plugin not registered"
        );
    }
    outcome
}

async fn connect(devices: &Arc<DeviceManager>, request: &RegisterRequest) -> Result<(), Status> {
    check(request).map_err(Status::unknown)?;
    let resource = &request.resource_name;
    devices.count_registration(resource);
    let socket = socket(devices.folder(), &request.endpoint).map_err(Status::unknown)?;
    let dialling = devices.sockets().connect(&socket);
    let dialled = within(&devices.runtime, ANSWER_TIMEOUT, dialling).await;
    let failed =
        |status: Status| Status::unknown(format!("failed to dial device plugin: {}", status.message()));
    let client = PluginClient::new(dialled.map_err(failed)?);
    let options = within(&devices.runtime, ANSWER_TIMEOUT, client.options()).await;
    let failed = |status: Status| {
        Status::unknown(format!(
            "failed to get device plugin options: {}",
            rpc_text(&status)
        ))
    };
    let options = options.map_err(failed)?;
    let no_place = || Status::resource_exhausted(format!("more than {PLUGINS_MAX} device plugins"));
    let connected = devices.connected(resource, client.clone(), options);
    let (registration, replaced) = connected.ok_or_else(no_place)?;
    tracing::info!(resource, socket = %socket.display(), "device plugin registered");
    let (own, resource) = (devices.clone(), resource.clone());
    devices.runtime().spawn("device plugin", async move {
        let watching = watch(&own, &resource, registration, &client);
        // Where another plugin takes its place, that one is watched.
        if let Some(why) = replaced.run_until_cancelled(watching).await {
            own.stopped(&resource, registration, &why);
        }
    });
    Ok(())
}

fn check(request: &RegisterRequest) -> Result<(), String> {
    let (version, resource) = (&request.version, &request.resource_name);
    if version != VERSION {
        return Err(format!(
            "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
        ));
    }
    match is_extended_resource(resource) {
        true => Ok(()),
        false => Err(format!("the ResourceName {resource:?} is invalid")),
    }
}

/// Path of a plugin's socket. It lies beside the agent's: upstream does not look whether it does.
fn socket(folder: &Path, endpoint: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(endpoint).components();
    let stays =
        !endpoint.is_empty() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let path = folder.join(endpoint);
    match stays && path.as_os_str().len() <= SOCKET_BYTES_MAX {
        true => Ok(path),
        false => Err("bad endpoint, must be the name of a socket in the folder of device plugins".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(version: &str, resource: &str, expected: &str) {
        let request = RegisterRequest {
            version: version.to_owned(),
            resource_name: resource.to_owned(),
            ..RegisterRequest::default()
        };
        assert_eq!(check(&request).err().unwrap_or_default(), expected, "{resource}");
    }

    #[test]
    fn plugin_registration_is_checked_in_upstreams_words() {
        check_refused("v1beta1", "example.com/gpu", "");
        check_refused(
            "v1alpha",
            "example.com/gpu",
            "requested API version \"v1alpha\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
        );
        for name in [
            "gpu",
            "kubernetes.io/gpu",
            "requests.example.com/gpu",
            "example.com/",
            "a b/c",
        ] {
            check_refused("v1beta1", name, &format!("the ResourceName {name:?} is invalid"));
        }
    }

    #[test]
    fn socket_of_a_plugin_lies_beside_the_agents() {
        let folder = Path::new("/plugins");
        assert_eq!(socket(folder, "gpu.sock").unwrap(), folder.join("gpu.sock"));
        assert_eq!(socket(folder, "a/gpu.sock").unwrap(), folder.join("a/gpu.sock"));
        let long = "x".repeat(SOCKET_BYTES_MAX);
        for endpoint in ["", "../gpu.sock", "/run/gpu.sock", "a/../../b", &long] {
            assert!(socket(folder, endpoint).is_err(), "{endpoint}");
        }
    }
}
