//! Services of the node that running pods use: their network, the rules of services, and names.

use super::address::node_ip;
use super::arguments::AgentArguments;
use crate::agent_cni;
use anyhow::Context;
use machinery_client::Client;
use machinery_runtime::Runtime;
use machinery_views::ServiceViews;
use node_dns::DnsConfig;
use node_network::NetworkConfig;
use node_network::cni::Plugin;
use node_proxy::{LinuxKernel, NodePortAddresses, ProxyConfig};
use node_sys::SystemExec;
use node_sys::routes::LinuxRoutes;
use std::net::IpAddr;
use std::sync::Arc;

/// Starts what pods that run already request, whatever the container runtime does.
pub(super) async fn start(arguments: &AgentArguments, runtime: &Runtime) -> anyhow::Result<Arc<Plugin>> {
    // Routes and rules follow all nodes, which the node's own identity may not.
    let client = services_client(arguments, runtime).await?;
    let node_name = arguments.node_name();
    let plugin = agent_cni::start(&arguments.data_dir, runtime)?;
    start_network(arguments, runtime, &client, &node_name)?;
    start_services(arguments, runtime, &client, &node_name);
    Ok(plugin)
}

fn start_network(
    arguments: &AgentArguments,
    runtime: &Runtime,
    client: &Client,
    node_name: &str,
) -> anyhow::Result<()> {
    let routes = LinuxRoutes::open().context("opening the kernel's routes")?;
    let config = NetworkConfig {
        node_name: node_name.to_string(),
        cluster_cidr: arguments.cluster_cidr,
        cni_config_dir: arguments.cni_config_dir(),
        third_party_config_dir: arguments.node.cni_conf_dir.clone(),
        plugins: arguments.plugin_folders(),
        is_enabled: !arguments.node.disable_network,
        host_settings: arguments.data_dir.join("host-settings"),
        mtu: None,
    };
    // The task belongs to the runtime; its handle is not needed.
    drop(node_network::start(
        config,
        client.clone(),
        Arc::new(SystemExec),
        Arc::new(routes),
        runtime.clone(),
    ));
    Ok(())
}

/// A client as `system:kube-proxy` where the server gave us that identity, else as the node.
async fn services_client(arguments: &AgentArguments, runtime: &Runtime) -> anyhow::Result<Client> {
    let own = arguments.data_dir.join("kube-proxy.kubeconfig");
    let node = || arguments.kubeconfig();
    let path = if own.try_exists().unwrap_or(false) {
        own
    } else {
        node()
    };
    Ok(Client::following_kubeconfig(&path, runtime.clone()).await?)
}

fn start_services(arguments: &AgentArguments, runtime: &Runtime, client: &Client, node_name: &str) {
    let dns = arguments.cluster_dns();
    if arguments.node.disable_proxy && arguments.node.disable_dns {
        return;
    }
    // The name that upstream's server sees for these watches.
    let client = client.clone().with_user_agent("kube-proxy");
    let views = ServiceViews::start(&client, runtime);
    if !arguments.node.disable_proxy {
        let node_ip = match node_ip(arguments.node.node_ip, &arguments.kubeconfig()) {
            Ok(IpAddr::V4(address)) => Some(address),
            _ => None,
        };
        let config = ProxyConfig {
            node_name: node_name.to_string(),
            node_ip,
            node_port_addresses: NodePortAddresses::new(&arguments.node.nodeport_addresses, node_ip),
            cluster_cidr: Some(arguments.cluster_cidr),
            service_cidr: Some(arguments.service_cluster_ip_range),
            local_addresses: if arguments.node.disable_dns {
                Vec::new()
            } else {
                dns.clone()
            },
        };
        let kernel = Arc::new(LinuxKernel::new(Arc::new(SystemExec), runtime.clone()));
        drop(node_proxy::start(
            config,
            client,
            views.clone(),
            kernel,
            runtime.clone(),
        ));
    }
    if let (false, Some(address)) = (arguments.node.disable_dns, dns.first()) {
        let path = arguments.resolv_conf();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let config = DnsConfig {
            cluster_domain: arguments.cluster_domain.clone(),
            cluster_dns: *address,
            port: 53,
            upstream: node_dns::name_servers(&text, *address),
            resolv_conf: Some(path),
            saved_zone: Some(arguments.data_dir.join("dns-zone")),
        };
        drop(node_dns::start(
            config,
            views,
            Arc::new(SystemExec),
            runtime.clone(),
        ));
    }
}
