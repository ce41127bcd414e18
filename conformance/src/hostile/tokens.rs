//! A webhook that knows the token of one tenant, and answers late about all others, which it does not know. The API server is
//! started with it, and this process serves it.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machinery_runtime::{Runtime, Scope};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Its address: attackers have others of this network.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 66, 6, 4);
/// Time until it has found out that it does not know a token.
const LATE: Duration = Duration::from_secs(5);
/// Bytes of a review.
const MAX_REVIEW: usize = 1 << 20;

/// The server of the webhook; dropping it ends it.
#[derive(Debug)]
pub(super) struct TokenWebhook {
    _serving: Scope,
    kubeconfig: PathBuf,
    /// The token that it knows.
    pub(super) token: String,
}

impl TokenWebhook {
    /// Serves the token of this user, and writes a kubeconfig for the API server.
    pub(super) async fn start(runtime: &Runtime, user: &'static str, kubeconfig: PathBuf) -> Result<Self> {
        let serving = runtime.child_scope();
        let token = format!("token-{:016x}{:016x}", runtime.random_u64(), runtime.random_u64());
        let listener = TcpListener::bind((ADDRESS, 0))
            .await
            .context("the address of the webhook for tokens")?;
        let own = rcgen::generate_simple_self_signed([ADDRESS.to_string()])?;
        let url = format!("https://{}/review", listener.local_addr()?);
        write_kubeconfig(&kubeconfig, &url, &own.cert.pem())?;
        let acceptor = acceptor(&own)?;
        let known = Arc::new((token.clone(), user));
        let within = serving.runtime().clone();
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, known, runtime) = (acceptor.clone(), Arc::clone(&known), within.clone());
                let connection = async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service =
                        service_fn(move |request| answered(request, Arc::clone(&known), runtime.clone()));
                    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    drop(serving.await);
                };
                within.spawn("token webhook", connection).detach();
            }
        };
        serving.runtime().spawn("token webhook", accepting).detach();
        Ok(Self {
            _serving: serving,
            kubeconfig,
            token,
        })
    }

    /// Flags of the API server: cached answers expire soon, so that the tenant's token is reviewed again and again.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            "--authentication-token-webhook-config-file".to_owned(),
            self.kubeconfig.display().to_string(),
            "--authentication-token-webhook-cache-ttl=1s".to_owned(),
        ]
    }
}

fn write_kubeconfig(path: &Path, url: &str, authority: &str) -> Result<()> {
    let cluster = json!({"server": url, "certificate-authority-data": STANDARD.encode(authority)});
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "tokens",
        "clusters": [{"name": "tokens", "cluster": cluster}],
        "contexts": [{"name": "tokens", "context": {"cluster": "tokens"}}]});
    std::fs::write(path, config.to_string()).context("writing the kubeconfig of the webhook for tokens")
}

fn acceptor(own: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

async fn answered(
    request: Request<Incoming>,
    known: Arc<(String, &'static str)>,
    runtime: Runtime,
) -> Result<Response<Full<Bytes>>> {
    let body = Limited::new(request.into_body(), MAX_REVIEW).collect().await;
    let body = body.map_err(anyhow::Error::msg)?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let (token, user) = &*known;
    let status = match review["spec"]["token"] == **token {
        true => json!({"authenticated": true, "user": {"username": user}}),
        false => {
            runtime.sleep(LATE).await;
            json!({})
        }
    };
    let answer = json!({"kind": "TokenReview", "apiVersion": review["apiVersion"], "status": status});
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}
