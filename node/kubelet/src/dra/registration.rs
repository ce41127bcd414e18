//! Registration of drivers' plugins, and their connections.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use machinery_meta::syntax;

use super::drivers::{self, choose_service};
use super::manager::{Dra, short};
use crate::plugins::calls::within;
use crate::plugins::handlers::{Plugin, PluginHandler};

/// Time for a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest pause before another connection, as gRPC's of upstream.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));

#[async_trait]
impl PluginHandler for Dra {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        // Selectors of slices have it, and slices that the API server takes have no other.
        if !syntax::dns1123_subdomain(&plugin.name).is_empty() {
            return Err(format!("invalid DRA driver name {:?}", short(&plugin.name)));
        }
        choose_service(plugin).map(drop)
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        let own = Arc::new(drivers::Plugin::new(plugin, choose_service(plugin)?));
        self.drivers.add(Arc::clone(&own))?;
        self.driver_changed(&own.driver);
        let (dra, gone) = (self.clone(), own.gone.clone());
        let keeping = async move {
            // Ends when the plugin is used no more.
            gone.run_until_cancelled(dra.keep_connection(&own)).await;
        };
        self.runtime.spawn("DRA plugin", keeping).detach();
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        if let Some(removed) = self.drivers.remove(&plugin.name, &plugin.registered_at) {
            removed.gone.cancel();
            self.driver_changed(&plugin.name);
        }
    }
}

impl Dra {
    /// Connects to a plugin whenever there is no connection, so that its end is noticed without a call.
    async fn keep_connection(&self, plugin: &drivers::Plugin) {
        let mut pause = RETRY_AFTER.0;
        loop {
            let dialling = self.sockets.connect_once(&plugin.endpoint);
            match within(&self.runtime, DIAL_TIMEOUT, dialling).await {
                Ok(mut connection) => {
                    pause = RETRY_AFTER.0;
                    plugin.set_live(Some(connection.transport));
                    self.driver_changed(&plugin.driver);
                    connection.ended.wait().await;
                    plugin.set_live(None);
                    self.driver_changed(&plugin.driver);
                    self.runtime.sleep(pause).await;
                }
                Err(status) => {
                    let error = node_plugin_api::calls::rpc_text(&status);
                    let endpoint = plugin.endpoint.display();
                    tracing::debug!(driver = plugin.driver, %endpoint, error, "DRA plugin not connected");
                    self.runtime.sleep(pause).await;
                    pause = (pause * 8 / 5).min(RETRY_AFTER.1);
                }
            }
        }
    }
}
