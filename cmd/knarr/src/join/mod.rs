//! Joining a cluster: from a server's address and a token to the node's own certificates, which are renewed while the agent runs.
//!
//! ```text
//! token -> [discovery]: the authority whose hash the token has, from the server's handshake -> [credentials]: a request for
//! the client's certificate, as the token's bearer -> kubeconfig -> [facts]: the cluster's ranges and domain -> the agent runs
//! [renewal]: the serving certificate, and both again in time
//! ```
//!
//! The facts learnt lie in the agent's folder: later starts need neither the token nor, for a while, the server.

mod arguments;
mod credentials;
mod discovery;
mod facts;
mod renewal;
mod request;

pub(crate) use arguments::JoinArguments;
pub(crate) use facts::{ClusterFacts, publish};
pub(crate) use renewal::keep_certificates;

use crate::own_certificate;
use anyhow::{Context, bail};
use apiserver_server::pki::write_private;
use arguments::Server;
use credentials::NodeCredentials;
use machinery_client::Client;
use machinery_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File of the cluster's authority, by which clients of the agent are known as well.
pub(crate) const AUTHORITY: &str = "client-ca.crt";
/// Pause between attempts while the server is not reached.
const RETRY: Duration = Duration::from_secs(5);

const NO_TOKEN: &str = "this node has no certificate of the cluster, or one that has ended: give --token (`knarr token create` on the \
    server prints one)";

/// A node that joins.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The agent's folder.
    pub(crate) folder: PathBuf,
    pub(crate) kubeconfig: PathBuf,
}

impl Node {
    fn user(&self) -> String {
        format!("system:node:{}", self.name)
    }

    fn authority(&self) -> PathBuf {
        self.folder.join(AUTHORITY)
    }
}

/// Refuses flags by which a node cannot join, before anything is left on the machine. Asks no server.
pub(crate) fn check(arguments: &JoinArguments, node: &Node) -> anyhow::Result<()> {
    let Some(server) = &arguments.server else {
        if arguments.is_given() {
            bail!("--token needs --server, the address of the cluster that this node joins");
        }
        return Ok(());
    };
    let _: Server = server.parse().context("--server")?;
    known_authority(arguments.token()?.as_ref(), node).map(drop)
}

/// Joins where a server is given, or goes on as a node that has joined. `None` without a server.
pub(crate) async fn enter(
    arguments: &JoinArguments,
    node: &Node,
    runtime: &Runtime,
) -> anyhow::Result<Option<ClusterFacts>> {
    check(arguments, node)?;
    let Some(server) = &arguments.server else {
        return Ok(None);
    };
    let server: Server = server.parse().context("--server")?;
    let token = arguments.token()?;
    let authority = authority(&server, token.as_ref(), node, runtime).await?;
    let credentials = NodeCredentials {
        node,
        server: &server,
        authority: &authority,
    };
    if credentials.keep(runtime.now())?.is_none() {
        let Some(token) = token else {
            bail!(NO_TOKEN);
        };
        credentials.request(&token, runtime).await?;
        tracing::info!(node = node.name, %server, "the node has joined");
    }
    let client = Client::from_kubeconfig(&node.kubeconfig, runtime.clone()).await?;
    facts::read(&client, &node.folder).await.map(Some)
}

/// The cluster's authority in PEM: the one that the token names, or the one of an earlier start.
async fn authority(
    server: &Server,
    token: Option<&crate::token::JoinToken>,
    node: &Node,
    runtime: &Runtime,
) -> anyhow::Result<String> {
    match known_authority(token, node)? {
        Authority::Known(known) => Ok(known),
        Authority::OfHash(hash) => {
            let found = discover(server, hash, runtime).await?;
            write_private(&node.authority(), &found)?;
            Ok(found)
        }
    }
}

/// The cluster's authority, before the first request to the server.
enum Authority<'a> {
    /// In PEM.
    Known(String),
    OfHash(&'a str),
}

fn known_authority<'a>(
    token: Option<&'a crate::token::JoinToken>,
    node: &Node,
) -> anyhow::Result<Authority<'a>> {
    let known = std::fs::read_to_string(node.authority()).ok();
    let hash = token.and_then(|token| token.authority_hash.as_deref());
    match (known, hash) {
        (Some(known), None) => Ok(Authority::Known(known)),
        (Some(known), Some(hash)) if discovery::is_of(&known, hash) => Ok(Authority::Known(known)),
        (Some(_), Some(_)) => bail!(
            "{} is the authority of another cluster than the token's: this node has joined that one (`knarr uninstall` \
             removes a node from its machine)",
            node.authority().display()
        ),
        (None, None) if token.is_none() => bail!(NO_TOKEN),
        (None, None) => bail!(
            "the token has no hash of the cluster's authority, by which the server is known: give the whole token that `knarr \
             token create` prints, or --discovery-token-ca-cert-hash"
        ),
        (None, Some(hash)) => Ok(Authority::OfHash(hash)),
    }
}

/// Goes on trying while the server is not reached.
async fn discover(server: &Server, hash: &str, runtime: &Runtime) -> anyhow::Result<String> {
    loop {
        match discovery::authority(server, hash, runtime).await {
            Err(error) if error.may_pass() => {
                tracing::warn!(error = format!("{:#}", anyhow::Error::new(error)), %server, "the server is not reached");
                runtime.sleep(RETRY).await;
            }
            other => return Ok(other?),
        }
    }
}

/// Reports whether the folder has a certificate that kubelets serve with.
pub(crate) fn serving_files(folder: &Path) -> (PathBuf, PathBuf) {
    (
        folder.join(own_certificate::CERTIFICATE),
        folder.join(own_certificate::KEY),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        join: JoinArguments,
    }

    #[test]
    fn join_without_a_token_says_where_tokens_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let line = Line::try_parse_from(["agent", "--server=https://192.0.2.1:6443"]).unwrap();
        let node = Node {
            name: "n".to_owned(),
            folder: folder.path().to_owned(),
            kubeconfig: folder.path().join("kubeconfig"),
        };
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = executor.block_on(async { enter(&line.join, &node, &Runtime::real()).await });
        assert_eq!(refused.unwrap_err().to_string(), NO_TOKEN);
    }

    #[test]
    fn join_flags_are_refused_before_the_server_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node {
            name: "n".to_owned(),
            folder: folder.path().join("absent"),
            kubeconfig: folder.path().join("kubeconfig"),
        };
        let refused = |flags: &[&str]| {
            let line = Line::try_parse_from([&["agent"], flags].concat()).unwrap();
            check(&line.join, &node).unwrap_err().to_string()
        };
        let server = "--server=https://192.0.2.1:6443";
        assert_eq!(refused(&[server]), NO_TOKEN);
        assert_eq!(
            refused(&["--server=ftp:/x", "--token=abcdef.0123456789abcdef"]),
            "--server"
        );
        assert_eq!(refused(&[server, "--token=x"]), "--token");
        assert!(refused(&[server, "--token=abcdef.0123456789abcdef"]).contains("no hash"));
        assert!(refused(&["--token=x"]).contains("needs --server"));
        assert!(!node.folder.try_exists().unwrap());
    }
}
