//! Runs the DNS server alone, in the network namespace it is started in: `dns KUBECONFIG ADDRESS [UPSTREAM…]`.

use machinery_client::Client;
use machinery_runtime::Runtime;
use machinery_views::ServiceViews;
use node_dns::{DnsConfig, start};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: dns KUBECONFIG ADDRESS [UPSTREAM…]")
    };
    let runtime = Runtime::real();
    let client = Client::from_kubeconfig(next()?.as_ref(), runtime.clone()).await?;
    let cluster_dns = next()?.parse()?;
    let upstream = arguments.map(|text| text.parse()).collect::<Result<_, _>>()?;
    let config = DnsConfig {
        cluster_domain: "cluster.local".to_owned(),
        cluster_dns,
        port: 53,
        upstream,
        resolv_conf: None,
        saved_zone: None,
    };
    let views = ServiceViews::start(&client, &runtime);
    let _running = start(config, views, Arc::new(node_sys::SystemExec), runtime);
    std::future::pending().await
}
