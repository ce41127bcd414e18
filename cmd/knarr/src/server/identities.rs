//! Kubeconfigs and certificates for those who use the server from this machine: the administrator, the node agent.

use super::arguments::ServerArguments;
use super::paths::Paths;
use anyhow::Context;
use apiserver_server::Server;
use apiserver_server::pki::{Identity, Kubeconfig, ServingNames, write_private};
use machinery_runtime::Runtime;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

const CLUSTER: &str = "knarr";

/// How this machine reaches the server.
pub(super) fn local_url(address: SocketAddr) -> String {
    let host = if address.ip().is_unspecified() {
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        address.ip()
    };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

fn write(server: &Server, url: &str, user: &str, identity: &Identity, path: &Path) -> anyhow::Result<()> {
    let authority_pem = server.pki().cluster.certificate_pem();
    let kubeconfig = Kubeconfig {
        server: url,
        authority_pem,
        cluster: CLUSTER,
        user,
        identity,
    };
    kubeconfig
        .write(path)
        .with_context(|| format!("writing {}", path.display()))
}

/// The administrator's, in the data directory and wherever else it was asked for.
pub(super) fn write_admin(
    server: &Server,
    url: &str,
    paths: &Paths,
    asked: Option<&Path>,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    const USER: &str = "kubernetes-admin";
    let identity = server
        .pki()
        .cluster
        .client(USER, Some("system:masters"), runtime.now())?;
    write(server, url, USER, &identity, &paths.admin())?;
    asked.map_or(Ok(()), |path| write(server, url, USER, &identity, path))
}

/// What the node agent finds in its folder: `kubeconfig` (its own identity), `kube-proxy.kubeconfig` (for service rules
/// and DNS), `kubelet.crt` and `kubelet.key` (for port 10250), `client-ca.crt` (who may ask it).
pub(super) fn write_agent(
    server: &Server,
    url: &str,
    arguments: &ServerArguments,
    paths: &Paths,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let node = node_name(arguments)?;
    let (pki, now) = (server.pki(), runtime.now());
    node_sys::fs::make_own_folder(&paths.agent()).context("creating the agent's folder")?;
    let names: ServingNames = [
        node.clone(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        server.advertised_address().to_string(),
    ]
    .into();
    let identity = pki.cluster.node(&node, &names, now)?;
    write(
        server,
        url,
        &format!("system:node:{node}"),
        &identity,
        &paths.in_agent("kubeconfig"),
    )?;
    write_private(&paths.in_agent("kubelet.crt"), identity.certificate_pem())?;
    write_private(&paths.in_agent("kubelet.key"), identity.key_pem())?;
    write_private(&paths.in_agent("client-ca.crt"), pki.cluster.certificate_pem())?;
    let proxy = pki
        .cluster
        .client("system:kube-proxy", Some("system:node-proxier"), now)?;
    write(
        server,
        url,
        "system:kube-proxy",
        &proxy,
        &paths.in_agent("kube-proxy.kubeconfig"),
    )
}

/// The node's name: given, or the host's in lower case.
pub(super) fn node_name(arguments: &ServerArguments) -> anyhow::Result<String> {
    if let Some(name) = &arguments.hostname_override {
        return Ok(name.clone());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading the host name")?;
    Ok(name.trim().to_lowercase())
}
