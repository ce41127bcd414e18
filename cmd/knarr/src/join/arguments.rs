//! The flags by which a node joins.

use crate::secret::Secret;
use crate::token::{JoinToken, authority_hash};
use anyhow::Context;
use clap::Args;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The server's usual port.
const PORT: u16 = 6443;

/// See the module.
#[derive(Args, Debug, Clone)]
pub(crate) struct JoinArguments {
    /// Server of the cluster that this node joins: https://HOST:PORT
    ///
    /// The node requests its certificates of the cluster and renews them; --cluster-domain, --cluster-cidr and
    /// --service-cluster-ip-range are the cluster's.
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// Token by which the node joins, as `knarr token create` prints it; later starts need none
    #[arg(long, conflicts_with = "token_file")]
    token: Option<Secret>,
    /// File with the token, which then is in no list of processes
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Hash of the cluster's authority for a token without one: sha256:HEX
    #[arg(long)]
    discovery_token_ca_cert_hash: Option<String>,
}

impl JoinArguments {
    /// Reports whether a flag of a token is given.
    pub(crate) fn is_given(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || self.discovery_token_ca_cert_hash.is_some()
    }

    /// The token with the hash, where there is one.
    pub(super) fn token(&self) -> anyhow::Result<Option<JoinToken>> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("--token-file {}", path.display()))
        };
        let text = match (&self.token, &self.token_file) {
            (Some(token), _) => token.reveal().to_owned(),
            (None, Some(path)) => read(path)?,
            (None, None) => return Ok(None),
        };
        let mut token: JoinToken = text.parse().context("--token")?;
        if let Some(hash) = &self.discovery_token_ca_cert_hash {
            let hash = authority_hash(hash).context("--discovery-token-ca-cert-hash")?;
            token.authority_hash = Some(hash);
        }
        Ok(Some(token))
    }
}

/// The address is none of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give the address of a server, as in https://10.0.0.1:6443")]
pub(crate) struct ServerAddressError;

/// Host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Server {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, ServerAddressError> {
        let rest = text.strip_prefix("https://").ok_or(ServerAddressError)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let authority: http::uri::Authority = authority.parse().map_err(|_| ServerAddressError)?;
        let host = authority.host().trim_matches(['[', ']']);
        let is_plain = !host.is_empty() && !authority.as_str().contains('@');
        is_plain
            .then(|| Self {
                host: host.to_owned(),
                port: authority.port_u16().unwrap_or(PORT),
            })
            .ok_or(ServerAddressError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_host_and_port() {
        for (text, expected) in [
            ("https://10.0.0.1:6443", Some("https://10.0.0.1:6443")),
            ("https://knarr.example/", Some("https://knarr.example:6443")),
            ("https://[fd00::1]:443", Some("https://[fd00::1]:443")),
            ("http://10.0.0.1:6443", None),
            ("10.0.0.1:6443", None),
            ("https://10.0.0.1/api", None),
            ("https://a@b", None),
            ("https://", None),
        ] {
            let found = text.parse::<Server>().ok().map(|own| own.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
