//! Kubeconfigs and certificates for those who use the server from this machine: the administrator, the node agent.

use super::arguments::ServerArguments;
use super::paths::Paths;
use crate::own_certificate;
use anyhow::Context;
use apiserver_server::Server;
use apiserver_server::pki::{Identity, Kubeconfig, ServingNames, write_private};
use jiff::Timestamp;
use machinery_runtime::Runtime;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

const CLUSTER: &str = "knarr";
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);

/// How this machine reaches the server.
pub(super) fn local_url(address: SocketAddr) -> String {
    let host = if address.ip().is_unspecified() {
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        address.ip()
    };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// Whom the server gives identities to, and where they lie.
pub(super) struct Identities<'a> {
    pub(super) server: &'a Server,
    pub(super) url: &'a str,
    pub(super) arguments: &'a ServerArguments,
    pub(super) paths: &'a Paths,
    pub(super) runtime: &'a Runtime,
}

impl Identities<'_> {
    /// Writes them all; they are to be written again at the time that is returned.
    pub(super) fn write_all(&self) -> anyhow::Result<Timestamp> {
        let due = self.write_admin()?;
        if self.arguments.disable_agent {
            return Ok(due);
        }
        Ok(due.min(self.write_agent()?))
    }

    /// The same at a start. On a full disk the files of the last start stay, and are written when there is room: a server
    /// that does not start cannot make any.
    pub(super) fn write_all_at_start(&self) -> anyhow::Result<Timestamp> {
        match self.write_all() {
            Err(error) if is_no_space(&error) => {
                tracing::warn!(error = format!("{error:#}"), "kubeconfigs are not written");
                // In the past: they are due at once, and again after each failure.
                Ok(Timestamp::UNIX_EPOCH)
            }
            written => written,
        }
    }

    /// Writes them again in time, for ever: those who use the files live longer than what lies in them.
    pub(super) async fn keep_young(&self, mut at: Timestamp) {
        loop {
            own_certificate::due(at, self.runtime).await;
            match self.write_all() {
                Ok(next) => {
                    tracing::info!("kubeconfigs renewed");
                    at = next;
                }
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "writing kubeconfigs anew");
                    self.runtime.sleep(RETRY).await;
                }
            }
        }
    }

    fn write(&self, user: &str, identity: &Identity, path: &Path) -> anyhow::Result<()> {
        let kubeconfig = Kubeconfig {
            server: self.url,
            authority_pem: self.server.pki().cluster.certificate_pem(),
            cluster: CLUSTER,
            user,
            identity,
        };
        kubeconfig
            .write(path)
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The administrator's, in the data directory and wherever else it was asked for.
    fn write_admin(&self) -> anyhow::Result<Timestamp> {
        const USER: &str = "kubernetes-admin";
        let authority = &self.server.pki().cluster;
        let identity = authority.client(USER, Some("system:masters"), self.runtime.now())?;
        self.write(USER, &identity, &self.paths.admin())?;
        if let Some(asked) = &self.arguments.write_kubeconfig {
            self.write(USER, &identity, asked)?;
        }
        Ok(identity.renew_at())
    }

    /// What the node agent finds in its folder: `kubeconfig` (its own identity), `kube-proxy.kubeconfig` (for service
    /// rules and DNS), `kubelet.crt` and `kubelet.key` (for port 10250, and to see when the rest is old),
    /// `client-ca.crt` (who may ask it).
    fn write_agent(&self) -> anyhow::Result<Timestamp> {
        let node = node_name(self.arguments)?;
        let (authority, now) = (&self.server.pki().cluster, self.runtime.now());
        let in_agent = |name: &str| self.paths.in_agent(name);
        node_sys::fs::make_own_folder(&self.paths.agent()).context("creating the agent's folder")?;
        let names: ServingNames = [
            node.clone(),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            self.server.advertised_address().to_string(),
        ]
        .into();
        let proxy = authority.client("system:kube-proxy", Some("system:node-proxier"), now)?;
        self.write("system:kube-proxy", &proxy, &in_agent("kube-proxy.kubeconfig"))?;
        let identity = authority.node(&node, &names, now)?;
        self.write(&format!("system:node:{node}"), &identity, &in_agent("kubeconfig"))?;
        write_private(&in_agent("client-ca.crt"), authority.certificate_pem())?;
        // The agent looks at these: they come last.
        write_private(&in_agent(own_certificate::KEY), identity.key_pem())?;
        write_private(
            &in_agent(own_certificate::CERTIFICATE),
            identity.certificate_pem(),
        )?;
        Ok(identity.renew_at())
    }
}

fn is_no_space(error: &anyhow::Error) -> bool {
    let causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    let mut kinds = causes.map(io::Error::kind);
    kinds.any(|kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// The node's name: given, or the host's in lower case.
pub(super) fn node_name(arguments: &ServerArguments) -> anyhow::Result<String> {
    if let Some(name) = &arguments.hostname_override {
        return Ok(name.clone());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading the host name")?;
    Ok(name.trim().to_lowercase())
}
