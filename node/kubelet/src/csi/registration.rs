//! Registration of drivers.

use std::time::Duration;

use async_trait::async_trait;
use node_plugin_api::csi::client::NodeClient;
use node_plugin_api::csi::messages::NodeGetInfoResponse;

use super::drivers::{Abilities, Driver};
use super::manager::{Csi, call_text};
use crate::plugins::calls::within;
use crate::plugins::handlers::{Plugin, PluginHandler};

/// Time for a connection to a driver.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between tries to take a driver out of the node's objects.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const TRIES: u32 = 16;
/// Bounds of what a driver says of a node: those of the CSINode object.
const NODE_ID_BYTES_MAX: usize = 192;
const TOPOLOGY_KEYS_MAX: usize = 64;

#[async_trait]
impl PluginHandler for Csi {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        self.drivers
            .check_versions(&plugin.name, &plugin.versions)
            .map(drop)
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        let version = self.drivers.check_versions(&plugin.name, &plugin.versions)?;
        let dialling = self.sockets.connect(&plugin.endpoint);
        let dialled = within(&self.runtime, DIAL_TIMEOUT, dialling).await;
        let client = NodeClient::new(dialled.map_err(|status| call_text(&status))?);
        let info = self
            .called(client.info())
            .await
            .map_err(|status| call_text(&status))?;
        check(&info)?;
        let abilities = self
            .called(client.capabilities())
            .await
            .map_err(|status| call_text(&status))?;
        self.show_driver(&plugin.name, &info).await?;
        let driver = Driver {
            client,
            root: self.root_of(&plugin.endpoint),
            endpoint: plugin.endpoint.clone(),
            version,
            abilities: Abilities::of(&abilities),
        };
        self.drivers.set(&plugin.name, driver);
        self.driver_came(&plugin.name);
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.drivers.remove(&plugin.name, &plugin.endpoint);
        let mut pause = RETRY_AFTER.0;
        for _ in 0..TRIES {
            // Another of the same name may have come meanwhile.
            let Err(error) = (match self.drivers.has(&plugin.name) {
                true => return,
                false => self.hide_driver(&plugin.name).await,
            }) else {
                return;
            };
            tracing::warn!(
                driver = plugin.name,
                error,
                "driver not taken out of the node's objects"
            );
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(RETRY_AFTER.1);
        }
    }
}

fn check(info: &NodeGetInfoResponse) -> Result<(), String> {
    let keys = info
        .accessible_topology
        .as_ref()
        .map_or(0, |place| place.segments.len());
    if info.node_id.len() > NODE_ID_BYTES_MAX || keys > TOPOLOGY_KEYS_MAX {
        let bytes = info.node_id.len();
        return Err(format!(
            "a node id of {bytes} bytes and {keys} topology keys, more than {NODE_ID_BYTES_MAX} and {TOPOLOGY_KEYS_MAX}"
        ));
    }
    Ok(())
}
