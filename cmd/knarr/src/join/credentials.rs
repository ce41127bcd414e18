//! The node's kubeconfig: its own certificate and key, the cluster's authority and the server's address.

use super::arguments::Server;
use super::request::{self, Wanted};
use super::{Node, RETRY};
use crate::kubeconfig::KubeconfigFile;
use crate::token::JoinToken;
use apiserver_server::pki::{Identity, LOOPBACK_CLIENT_NAME, write_private};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery_client::{Client, ClientError};
use machinery_runtime::Runtime;
use machinery_x509::{Authorities, PeerCertificate};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

/// See the module.
pub(super) struct NodeCredentials<'a> {
    pub(super) node: &'a Node,
    pub(super) server: &'a Server,
    /// In PEM.
    pub(super) authority: &'a str,
}

impl NodeCredentials<'_> {
    /// The identity of the node's kubeconfig while the authority's signature holds; the server in the file is the given one then.
    pub(super) fn keep(&self, now: Timestamp) -> anyhow::Result<Option<Identity>> {
        let file = KubeconfigFile::read(&self.node.kubeconfig)?;
        let Some(identity) = file.user_identity(&self.node.user()) else {
            return Ok(None);
        };
        if !self.vouches_for(&identity, now) {
            return Ok(None);
        }
        if file.current_server() != Some(&self.server.to_string()) {
            self.write(&identity)?;
        }
        Ok(Some(identity))
    }

    fn vouches_for(&self, identity: &Identity, now: Timestamp) -> bool {
        let Ok(authority) = CertificateDer::from_pem_slice(self.authority.as_bytes()) else {
            return false;
        };
        let Ok(authorities) = Authorities::new(vec![authority]) else {
            return false;
        };
        let peer = PeerCertificate::new(identity.chain());
        let verified = peer.and_then(|peer| authorities.verified(&peer, now).ok());
        let user = verified.and_then(|verified| verified.user.clone().ok().flatten());
        user.is_some_and(|user| user.name == self.node.user())
    }

    /// Requests the node's certificate as the bearer of a token, and writes the kubeconfig.
    pub(super) async fn request(&self, token: &JoinToken, runtime: &Runtime) -> anyhow::Result<()> {
        let text = self
            .kubeconfig("bootstrap", json!({"token": token.bearer()}))
            .to_string();
        let client = Client::from_kubeconfig_text(&text, runtime.clone()).await?;
        loop {
            match request::certificate(&client, &self.node.name, &Wanted::Client, runtime).await {
                Ok(identity) => return self.write(&identity),
                Err(error) if is_final(&error) => return Err(explained(error)),
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "requesting the node's certificate failed"
                    );
                    runtime.sleep(RETRY).await;
                }
            }
        }
    }

    /// Writes the kubeconfig, whole or not at all: its readers find a certificate with its key.
    pub(super) fn write(&self, identity: &Identity) -> anyhow::Result<()> {
        let user = json!({
            "client-certificate-data": STANDARD.encode(identity.certificate_pem()),
            "client-key-data": STANDARD.encode(identity.key_pem()),
        });
        let text = self.kubeconfig(&self.node.user(), user).to_string();
        Ok(write_private(&self.node.kubeconfig, &text)?)
    }

    fn kubeconfig(&self, user: &str, credentials: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "clusters": [{"name": "knarr", "cluster": {
                "server": self.server.to_string(),
                "tls-server-name": LOOPBACK_CLIENT_NAME,
                "certificate-authority-data": STANDARD.encode(self.authority),
            }}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "node", "context": {"cluster": "knarr", "user": user}}],
        })
    }
}

/// Reports whether the same token gets the same answer again: it is refused, or the request is.
fn is_final(error: &anyhow::Error) -> bool {
    match answer_code(error) {
        Some(code) => advice(code).is_some(),
        None => error.to_string().contains("was refused"),
    }
}

/// The code of the server's answer, where there was one.
fn answer_code(error: &anyhow::Error) -> Option<i32> {
    let answered = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>());
    answered.map(ClientError::code)
}

/// Causes of a refusal that the same token will get again.
fn advice(code: i32) -> Option<&'static str> {
    match code {
        401 => Some(
            "the cluster does not know the token, or it has ended: `knarr token list` on the server's machine shows those that are good",
        ),
        403 => Some("the token's groups may not request certificates of nodes"),
        _ => None,
    }
}

fn explained(error: anyhow::Error) -> anyhow::Error {
    match answer_code(&error).and_then(advice) {
        Some(advice) => error.context(advice),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

    #[test]
    fn join_says_what_is_wrong_with_a_token_that_is_refused() {
        let answer = ClientError::Status(Box::new(Status {
            code: Some(401),
            ..Status::default()
        }));
        let refused = anyhow::Error::new(answer).context("requesting a certificate");
        assert!(is_final(&refused));
        let told = format!("{:#}", explained(refused));
        assert!(told.starts_with("the cluster does not know the token"), "{told}");
        assert!(!is_final(&anyhow::anyhow!("connection refused")));
    }
}
