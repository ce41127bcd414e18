//! The agent as its node's CNI plugin: the plugin's program is written, its socket served before any pod starts, and leases
//! of addresses are compared with the sandboxes that the container runtime has.

use anyhow::Context;
use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use node_network::cni::links::KernelLinks;
use node_network::cni::{self, Plugin};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Sandboxes are listed this often, and after a list that failed.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
const COMPARE_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Folder of the plugin's program and of the agent's socket, root's alone.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("cni-agent")
}

/// Writes the program and serves its calls as long as the runtime's scope lasts.
pub(crate) fn start(data_dir: &Path, runtime: &Runtime) -> anyhow::Result<Arc<Plugin>> {
    let folder = folder(data_dir);
    cni::install(&folder).context("writing the CNI plugin")?;
    let links = KernelLinks::open().context("opening the kernel's links")?;
    let plugin = Arc::new(Plugin::new(&data_dir.join("cni-state"), Arc::new(links)));
    let (own, serving) = (runtime.clone(), Arc::clone(&plugin));
    let serve = move || {
        let (folder, plugin, runtime) = (folder.clone(), Arc::clone(&serving), own.clone());
        async move {
            let served = cni::serve(&folder, plugin, &runtime).await;
            served.map_err(|error| error.to_string())
        }
    };
    runtime.supervise("cni", serve).detach();
    Ok(plugin)
}

/// Removes what no sandbox has, for ever.
pub(crate) async fn collect(plugin: Arc<Plugin>, cri: CriClient, runtime: Runtime) {
    loop {
        let request = v1::ListPodSandboxRequest { filter: None };
        let Ok(listed) = cri.list_pod_sandbox(request).await else {
            runtime.sleep(COMPARE_AGAIN_AFTER).await;
            continue;
        };
        let live: BTreeSet<String> = listed.items.into_iter().map(|sandbox| sandbox.id).collect();
        let (plugin, now) = (Arc::clone(&plugin), runtime.monotonic());
        // A panic was logged and counted.
        let _ = runtime.blocking(move || plugin.collect(&live, now)).await;
        runtime.sleep(COMPARE_EVERY).await;
    }
}
