//! Runs the proxy alone, in the network namespace it is started in: `proxy KUBECONFIG NODE CLUSTER_CIDR`.

use machinery_client::Client;
use machinery_runtime::Runtime;
use machinery_views::ServiceViews;
use node_proxy::{LinuxKernel, ProxyConfig, start};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: proxy KUBECONFIG NODE CLUSTER_CIDR")
    };
    let runtime = Runtime::real();
    let client = Client::from_kubeconfig(next()?.as_ref(), runtime.clone()).await?;
    let config = ProxyConfig {
        node_name: next()?,
        node_ip: None,
        cluster_cidr: Some(next()?.parse()?),
        service_cidr: None,
        local_addresses: vec![[10, 96, 0, 10].into()],
        node_port_addresses: node_proxy::NodePortAddresses::default(),
    };
    let kernel = Arc::new(LinuxKernel::new(Arc::new(node_sys::SystemExec), runtime.clone()));
    let views = ServiceViews::start(&client, &runtime);
    let _running = start(config, client, views, kernel, runtime);
    std::future::pending().await
}
