//! Opening connections.

use arc_swap::ArcSwap;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use machinery_meta::dial::{dial_error, system_words};
use machinery_runtime::Runtime;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A host that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A body on its way out.
pub type OutgoingBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("{0}")]
    Connect(String),
    #[error("{0:?} is no host name")]
    Name(String),
    #[error("TLS with {to}: {cause}")]
    Tls { to: String, cause: String },
    #[error("{}", exchange_words(.to, .source))]
    Http {
        to: String,
        #[source]
        source: hyper::Error,
    },
}

/// How Go's client words a connection that ends before its answer.
fn exchange_words(to: &str, error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let system = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match system {
        Some(system) => format!("read tcp {to}: read: {}", system_words(system)),
        None => format!("talking to {to}: {error}"),
    }
}

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// An address or a name.
    pub host: String,
    pub port: u16,
    pub security: Security,
}

/// What a connection shows, and what it asks to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TCP alone.
    Plain,
    /// TLS with our client certificate, towards a certificate of our authority: a kubelet.
    Mutual,
    /// TLS that shows nothing of ours and takes any certificate: whatever a pod serves with is its own affair.
    Unverified,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Opens connections, some of them with our client certificate.
#[derive(Clone)]
pub struct Dialer {
    mutual: Arc<ArcSwap<ClientConfig>>,
    unverified: Arc<ClientConfig>,
    runtime: Runtime,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub fn new(mutual: Arc<ClientConfig>, unverified: Arc<ClientConfig>, runtime: Runtime) -> Self {
        Self {
            mutual: Arc::new(ArcSwap::new(mutual)),
            unverified,
            runtime,
        }
    }

    /// From now on connections with our client certificate are opened with this configuration, by every clone.
    pub fn replace(&self, mutual: Arc<ClientConfig>) {
        self.mutual.store(mutual);
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Sends one request over a connection of its own. Its address is origin form (`/path?query`); `Host` is set here.
    pub async fn send(
        &self,
        to: &Destination,
        mut request: http::Request<OutgoingBody>,
    ) -> Result<http::Response<Incoming>, EgressError> {
        if let Ok(host) = http::HeaderValue::from_str(&to.to_string()) {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let stream = self.connect(to).await?;
        let tls = match to.security {
            Security::Plain => return self.exchange(to, stream, request).await,
            Security::Mutual => self.mutual.load_full(),
            Security::Unverified => Arc::clone(&self.unverified),
        };
        let stream = self.handshake(to, tls, stream).await?;
        self.exchange(to, stream, request).await
    }

    async fn connect(&self, to: &Destination) -> Result<TcpStream, EgressError> {
        let failed = |error: io::Error| EgressError::Connect(dial_error(&to.host, to.port, &error));
        let connecting = TcpStream::connect((to.host.as_str(), to.port));
        let connected = self.runtime.timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = connected
            .map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }

    async fn handshake(
        &self,
        to: &Destination,
        tls: Arc<ClientConfig>,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, EgressError> {
        let failed = |cause: String| EgressError::Tls {
            to: to.to_string(),
            cause,
        };
        let name = ServerName::try_from(to.host.clone()).map_err(|_| EgressError::Name(to.host.clone()))?;
        let shaken = self
            .runtime
            .timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(tls).connect(name, stream))
            .await;
        shaken
            .map_err(|_| failed("timeout".to_owned()))?
            .map_err(|error| failed(error.to_string()))
    }

    async fn exchange<S>(
        &self,
        to: &Destination,
        stream: S,
        request: http::Request<OutgoingBody>,
    ) -> Result<http::Response<Incoming>, EgressError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed = |source| EgressError::Http {
            to: to.to_string(),
            source,
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        // Ends when the answer has been read, or dropped.
        self.runtime
            .spawn("egress-connection", async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "egress connection ended");
                }
            })
            .detach();
        sender.send_request(request).await.map_err(failed)
    }
}
