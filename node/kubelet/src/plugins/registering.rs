//! The life of one socket: its plugin is identified, registered with its type's handler, and deregistered when the socket is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::{CancellationToken, Runtime};
use node_plugin_api::calls::{Transport, rpc_text};
use node_plugin_api::plugin_registration::{PluginInfo, RegistrationStatus, get_info, notify};
use parking_lot::Mutex;
use tonic::Status;

use super::calls::within;
use super::handlers::{HandlerRow, Plugin, PluginHandler};
use crate::api::printable;
use crate::plugins::sockets::PluginSockets;

/// Upstream's times for a connection, for the first answer and for the last.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause between tries, as upstream's `exponentialbackoff`.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));
/// A longer name is no driver's and no resource's.
const NAME_BYTES_MAX: usize = 253;
/// A longer path is no socket's.
const SOCKET_BYTES_MAX: usize = 107;
const VERSIONS_MAX: usize = 64;
const VERSION_BYTES_MAX: usize = 64;

/// A socket in the folder of registrations.
pub(super) struct Registering {
    pub(super) runtime: Runtime,
    pub(super) sockets: Arc<dyn PluginSockets>,
    pub(super) handlers: Arc<Vec<HandlerRow>>,
    pub(super) socket: PathBuf,
    /// Set before a handler begins to use the plugin.
    pub(super) begun: Mutex<Option<Registered>>,
}

/// A plugin that its handler uses, or is about to.
#[derive(Clone)]
pub(super) struct Registered {
    plugin: Plugin,
    handler: Arc<dyn PluginHandler>,
}

impl Registering {
    /// Registers the plugin, and takes the registration back when the socket has gone: also one that is only half done.
    pub(super) async fn run(self, gone: CancellationToken) {
        let socket = self.socket.display();
        if gone.run_until_cancelled(self.until_registered()).await.is_some() {
            tracing::info!(%socket, "plugin registered");
            gone.cancelled().await;
        }
        let begun = self.begun.lock().take();
        if let Some(Registered { plugin, handler }) = begun {
            handler.deregister(&plugin).await;
            tracing::info!(plugin = plugin.name, %socket, "plugin deregistered");
        }
    }

    async fn until_registered(&self) {
        let mut pause = RETRY_AFTER.0;
        while let Err(error) = self.attempt().await {
            let (socket, error) = (self.socket.display(), printable(&error));
            tracing::warn!(%socket, %error, "plugin not registered");
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(RETRY_AFTER.1);
        }
    }

    /// One try. Words are upstream's.
    async fn attempt(&self) -> Result<(), String> {
        let socket = self.socket.display();
        let dialling = self.sockets.connect(&self.socket);
        let dialled = within(&self.runtime, DIAL_TIMEOUT, dialling).await;
        let failed = |status: Status| format!("dial failed at socket {socket}, err: {}", rpc_text(&status));
        let client = dialled.map_err(failed)?;
        let info = within(&self.runtime, INFO_TIMEOUT, get_info(&client))
            .await
            .map_err(|status| {
                let why = rpc_text(&status);
                format!("failed to get plugin info using RPC GetInfo at socket {socket}, err: {why}")
            })?;
        match self.hand_over(info).await {
            Ok(()) => {
                // The plugin is used, whatever it makes of the news.
                if let Err(status) = self.notify(&client, None).await {
                    let error = rpc_text(&status);
                    tracing::warn!(%socket, error, "the plugin did not take the news of its registration");
                }
                Ok(())
            }
            Err(why) => {
                let _ = self.notify(&client, Some(&why)).await;
                Err(why)
            }
        }
    }

    async fn hand_over(&self, info: PluginInfo) -> Result<(), String> {
        let known = self.handlers.iter().find(|(kind, _)| *kind == info.r#type);
        let Some((_, handler)) = known else {
            let (kind, socket): (String, _) = (info.r#type.chars().take(64).collect(), self.socket.display());
            return Err(format!(
                "no handler registered for plugin type: {kind} at socket {socket}"
            ));
        };
        let invalid = |why: String| format!("plugin validation failed with err: {why}");
        let plugin = plugin_of(info, &self.socket).map_err(invalid)?;
        handler.validate(&plugin).map_err(invalid)?;
        *self.begun.lock() = Some(Registered {
            plugin: plugin.clone(),
            handler: Arc::clone(handler),
        });
        let registered = handler.register(&plugin).await;
        registered.map_err(|why| format!("plugin registration failed with err: {why}"))
    }

    async fn notify(&self, client: &Transport, refused: Option<&str>) -> Result<(), Status> {
        let status = RegistrationStatus {
            plugin_registered: refused.is_none(),
            error: refused
                .map(|why| format!("RegisterPlugin error -- {why}"))
                .unwrap_or_default(),
        };
        within(&self.runtime, NOTIFY_TIMEOUT, notify(client, status)).await
    }
}

/// The plugin of a description, where it is one of bounded size.
fn plugin_of(info: PluginInfo, socket: &Path) -> Result<Plugin, String> {
    if info.name.is_empty() || info.name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "a name of {} bytes, not 1 to {NAME_BYTES_MAX}",
            info.name.len()
        ));
    }
    let endpoint = match info.endpoint.is_empty() {
        true => socket.to_owned(),
        false => PathBuf::from(info.endpoint),
    };
    if !endpoint.is_absolute() || endpoint.as_os_str().len() > SOCKET_BYTES_MAX {
        return Err("the endpoint is not the path of a socket".to_owned());
    }
    let versions = info.supported_versions;
    if versions.len() > VERSIONS_MAX || versions.iter().any(|version| version.len() > VERSION_BYTES_MAX) {
        return Err("too many versions, or too long ones".to_owned());
    }
    let name = info.name;
    Ok(Plugin {
        name,
        endpoint,
        versions,
        registered_at: socket.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, endpoint: &str, versions: Vec<String>) -> PluginInfo {
        PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: versions,
        }
    }

    #[test]
    fn plugin_without_an_endpoint_is_served_where_it_registers() {
        let socket = Path::new("/registry/a.sock");
        let plugin = plugin_of(info("a", "", vec![]), socket).unwrap();
        assert_eq!(plugin.endpoint, socket);
        let plugin = plugin_of(info("a", "/plugins/a/csi.sock", vec![]), socket).unwrap();
        assert_eq!(plugin.endpoint, Path::new("/plugins/a/csi.sock"));
    }

    #[test]
    fn plugin_that_describes_itself_beyond_bounds_is_refused() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let path = format!("/{}", "x".repeat(SOCKET_BYTES_MAX));
        let many = vec!["1.0.0".to_owned(); VERSIONS_MAX + 1];
        for refused in [
            info("", "/a", vec![]),
            info(&long, "/a", vec![]),
            info("a", "relative", vec![]),
            info("a", &path, vec![]),
            info("a", "/a", many),
            info("a", "/a", vec![long.clone()]),
        ] {
            plugin_of(refused, Path::new("/s")).unwrap_err();
        }
    }
}
