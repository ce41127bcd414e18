//! The devices of one plugin, from its registration to its end.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use node_plugin_api::calls::rpc_text;
use node_plugin_api::device_plugin::client::PluginClient;
use node_plugin_api::device_plugin::messages::ListAndWatchResponse;
use tonic::{Status, Streaming};

use super::inventory;
use super::manager::DeviceManager;

/// Lists of one plugin are taken in no more often: of those that come meanwhile the last one counts.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// Lists that are passed over in one go.
const PASSED_OVER_MAX: usize = 1_000;

/// Applies a plugin's lists until it ends; returns the reason.
pub(super) async fn watch(
    devices: &Arc<DeviceManager>,
    resource: &str,
    registration: u64,
    client: &PluginClient,
) -> String {
    let mut lists = match client.list_and_watch().await {
        Ok(lists) => lists,
        Err(status) => return rpc_text(&status),
    };
    loop {
        let list = match newest(&mut lists).await {
            Ok(Some(list)) => list,
            Ok(None) => return "the plugin ended its list".to_owned(),
            Err(status) => return rpc_text(&status),
        };
        let known = inventory::devices(list.devices);
        if let Err(why) = known.and_then(|known| devices.listed(resource, registration, known)) {
            return why;
        }
        devices.runtime().sleep(LIST_PAUSE).await;
    }
}

/// The next list; where several are there, the last one.
async fn newest(lists: &mut Streaming<ListAndWatchResponse>) -> Result<Option<ListAndWatchResponse>, Status> {
    let mut newest = lists.message().await?;
    for _ in 0..PASSED_OVER_MAX {
        match lists.message().now_or_never() {
            None => break,
            Some(Ok(None)) | Some(Err(_)) if newest.is_some() => break,
            Some(next) => newest = next?,
        }
    }
    Ok(newest)
}
