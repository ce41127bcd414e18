//! Renewal of the node's certificates while the agent runs, which follows their files: nothing is restarted.

use super::arguments::Server;
use super::credentials::NodeCredentials;
use super::request::{self, Wanted};
use super::{JoinArguments, Node};
use crate::own_certificate::{self, due};
use anyhow::Context;
use apiserver_server::pki::{Identity, write_private};
use machinery_client::Client;
use machinery_runtime::Runtime;
use std::net::IpAddr;
use std::time::Duration;

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// Keeps both certificates of a node that has joined.
pub(crate) fn keep_certificates(
    arguments: &JoinArguments,
    node: &Node,
    address: IpAddr,
    client: &Client,
    runtime: &Runtime,
) {
    for wanted in [Wanted::Client, Wanted::Serving(address)] {
        let keeper = Keeper {
            server: arguments.server.clone().unwrap_or_default(),
            node: node.clone(),
            wanted,
            client: client.clone(),
            runtime: runtime.clone(),
        };
        let name = match keeper.wanted {
            Wanted::Client => "client certificate",
            Wanted::Serving(_) => "serving certificate",
        };
        let begin = move || {
            let keeper = keeper.clone();
            async move { keeper.run().await }
        };
        runtime.keep(name, begin).detach();
    }
}

/// One certificate of the node.
#[derive(Debug, Clone)]
struct Keeper {
    server: String,
    node: Node,
    wanted: Wanted,
    client: Client,
    runtime: Runtime,
}

impl Keeper {
    async fn run(&self) {
        loop {
            if let Some(current) = self.current() {
                due(current.renew_at(), &self.runtime).await;
            }
            match self.renew().await {
                Ok(()) => tracing::info!(wanted = ?self.wanted, "the cluster signed a new certificate"),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), wanted = ?self.wanted, "renewing a certificate failed");
                    self.runtime.sleep(RETRY).await;
                }
            }
        }
    }

    /// The certificate that is used now, if it is for what is wanted.
    fn current(&self) -> Option<Identity> {
        let now = self.runtime.now();
        match self.wanted {
            Wanted::Client => {
                let file = crate::kubeconfig::KubeconfigFile::read(&self.node.kubeconfig).ok()?;
                file.user_identity(&self.node.user())
            }
            Wanted::Serving(address) => {
                let wanted = [self.node.name.clone(), address.to_string()];
                let found = own_certificate::read(&self.node.folder)?;
                let is_right = wanted.iter().all(|name| found.names().contains(name));
                (is_right && now < found.not_after()).then_some(found)
            }
        }
    }

    async fn renew(&self) -> anyhow::Result<()> {
        let identity =
            request::certificate(&self.client, &self.node.name, &self.wanted, &self.runtime).await?;
        match self.wanted {
            Wanted::Client => {
                let authority = std::fs::read_to_string(self.node.authority());
                let server: Server = self.server.parse()?;
                let credentials = NodeCredentials {
                    node: &self.node,
                    server: &server,
                    authority: &authority.context("reading the authority")?,
                };
                credentials.write(&identity)
            }
            Wanted::Serving(_) => {
                let (certificate, key) = super::serving_files(&self.node.folder);
                write_private(&key, identity.key_pem())?;
                Ok(write_private(&certificate, identity.certificate_pem())?)
            }
        }
    }
}
