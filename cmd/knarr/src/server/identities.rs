//! Kubeconfigs and certificates for clients on this machine: the administrator, the node agent.

use super::arguments::ServerArguments;
use super::paths::Paths;
use crate::kubeconfig::{self, Entries, KubeconfigError, KubeconfigFile};
use crate::own_certificate;
use anyhow::Context;
use apiserver_server::Server;
use apiserver_server::pki::{Identity, ServingNames, write_private};
use jiff::Timestamp;
use machinery_runtime::Runtime;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// URL at which this machine reaches the server.
pub(super) fn local_url(address: SocketAddr) -> String {
    let host = if address.ip().is_unspecified() {
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        address.ip()
    };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// Writer of the identities that the server issues, and the paths at which they lie.
pub(super) struct Identities<'a> {
    pub(super) server: &'a Server,
    pub(super) url: &'a str,
    pub(super) arguments: &'a ServerArguments,
    pub(super) paths: &'a Paths,
    pub(super) runtime: &'a Runtime,
}

impl Identities<'_> {
    /// Writes them all, except what is good still; they are to be written again at the time that is returned.
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
                tracing::warn!(
                    error = format!("{error:#}"),
                    "writing kubeconfigs failed, retrying"
                );
                // In the past: they are due at once, and again after each failure.
                Ok(Timestamp::UNIX_EPOCH)
            }
            written => written,
        }
    }

    /// Renews the kubeconfigs before their certificates expire, for ever: their users run longer than that.
    pub(super) async fn renew_kubeconfigs(&self, mut at: Timestamp) {
        loop {
            own_certificate::due(at, self.runtime).await;
            match self.write_all() {
                Ok(next) => {
                    tracing::info!("kubeconfigs renewed");
                    at = next;
                }
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "renewing kubeconfigs failed");
                    self.runtime.sleep(RETRY).await;
                }
            }
        }
    }

    /// The administrator's, in the data directory and wherever else it was requested.
    fn write_admin(&self) -> anyhow::Result<Timestamp> {
        let entries = kubeconfig::admin(self.url, &self.server.pki().cluster);
        let identity = self.keep_own(&entries, &self.paths.admin(), None)?;
        let Some(requested) = &self.arguments.write_kubeconfig else {
            return Ok(identity.renew_at());
        };
        let flag = || format!("--write-kubeconfig {}", requested.display());
        // It is its owner's: what it holds of another cluster is not ours to replace.
        let file = KubeconfigFile::read_of(requested, entries.authority).with_context(flag)?;
        let kept = file.identity(&entries, self.runtime.now());
        let kept = kept.as_ref().unwrap_or(&identity);
        file.put(&entries, kept).with_context(flag)?;
        Ok(identity.renew_at().min(kept.renew_at()))
    }

    /// Keeps a file of the data directory; `identity` replaces credentials in it that are others, or else those that are no
    /// longer valid are renewed.
    fn keep_own(
        &self,
        entries: &Entries<'_>,
        path: &Path,
        identity: Option<Identity>,
    ) -> anyhow::Result<Identity> {
        let writing = || format!("writing {}", path.display());
        let file = match KubeconfigFile::read_of(path, entries.authority) {
            Err(error @ KubeconfigError::Reading { .. }) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "a kubeconfig of the data directory is replaced");
                KubeconfigFile::empty(path)
            }
            Ok(file) => file,
        };
        let now = self.runtime.now();
        let identity = match identity.or_else(|| file.identity(entries, now)) {
            Some(identity) => identity,
            None => kubeconfig::made(entries, now)?,
        };
        file.put(entries, &identity).with_context(writing)?;
        Ok(identity)
    }

    /// Writes the files of the node agent: `kubeconfig` (its own identity), `kube-proxy.kubeconfig` (for service
    /// rules and DNS), `kubelet.crt` and `kubelet.key` (for port 10250, and to see when the rest is old),
    /// `client-ca.crt` (the authority of its clients).
    fn write_agent(&self) -> anyhow::Result<Timestamp> {
        let node = node_name(self.arguments)?;
        let authority = &self.server.pki().cluster;
        let in_agent = |name: &str| self.paths.in_agent(name);
        let entries = |user, group| Entries {
            server: self.url,
            authority,
            user,
            group: Some(group),
        };
        node_sys::fs::make_own_folder(&self.paths.agent()).context("creating the agent's folder")?;
        let proxy = entries("system:kube-proxy", "system:node-proxier");
        let proxy = self.keep_own(&proxy, &in_agent("kube-proxy.kubeconfig"), None)?;
        let user = format!("system:node:{node}");
        let entries = entries(&user, "system:nodes");
        let identity = self.node_identity(&node, &entries)?;
        let identity = self.keep_own(&entries, &in_agent("kubeconfig"), Some(identity))?;
        write_private(&in_agent("client-ca.crt"), authority.certificate_pem())?;
        // The agent looks at these: they come last.
        write_private(&in_agent(own_certificate::KEY), identity.key_pem())?;
        write_private(
            &in_agent(own_certificate::CERTIFICATE),
            identity.certificate_pem(),
        )?;
        Ok(identity.renew_at().min(proxy.renew_at()))
    }

    /// The node's identity, which serves port 10250 as well: the one in the agent's folder while it is good and has the
    /// names, or else a new one.
    fn node_identity(&self, node: &str, entries: &Entries<'_>) -> anyhow::Result<Identity> {
        let names: ServingNames = [
            node.to_owned(),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            self.server.advertised_address().to_string(),
        ]
        .into();
        let now = self.runtime.now();
        let kept = own_certificate::read(&self.paths.agent()).filter(|kept| {
            let is_good = entries
                .authority
                .vouches_for(kept, entries.user, entries.group, now);
            is_good && kept.names().is_superset(&names)
        });
        match kept {
            Some(kept) => Ok(kept),
            None => Ok(entries.authority.node(node, &names, now)?),
        }
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
    if let Some(name) = &arguments.node.own.hostname_override {
        return Ok(name.clone());
    }
    host_name()
}

/// The host's name in lower case.
pub(crate) fn host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading the host name")?;
    Ok(name.trim().to_lowercase())
}
