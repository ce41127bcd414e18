//! Runs the pod network alone, in the network namespace it is started in: `network KUBECONFIG NODE CNI_DIR NOTE`.

use machinery_client::Client;
use machinery_runtime::Runtime;
use node_network::third_party::PluginFolders;
use node_network::{NetworkConfig, start};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: network KUBECONFIG NODE CNI_DIR NOTE")
    };
    let runtime = Runtime::real();
    let client = Client::from_kubeconfig(next()?.as_ref(), runtime.clone()).await?;
    let config = NetworkConfig {
        node_name: next()?,
        cluster_cidr: "10.244.0.0/16".parse()?,
        cni_config_dir: next()?.into(),
        third_party_config_dir: "/etc/cni/net.d".into(),
        plugins: PluginFolders {
            from: Vec::new(),
            links: std::env::temp_dir().join("cni-plugins"),
        },
        is_enabled: true,
        host_settings: next()?.into(),
        mtu: None,
    };
    let _running = start(
        config,
        client,
        Arc::new(node_sys::SystemExec),
        Arc::new(node_sys::routes::LinuxRoutes::open()?),
        runtime,
    );
    std::future::pending().await
}
