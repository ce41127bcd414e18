//! Opening connections.

use crate::address::{AllowedAddresses, OwnAddresses};
use arc_swap::ArcSwap;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use machinery_meta::dial::{dial_error, system_error_text};
use machinery_runtime::{Runtime, keep_alive};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A host that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer may take long to begin (a report, a long poll), and not for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// A body on its way out.
pub type OutgoingBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Failures of a request to another server.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("{0}")]
    Connect(String),
    /// The destination is none that may be reached.
    #[error("{0}")]
    Refused(String),
    #[error("timeout awaiting response headers")]
    NoAnswer,
    #[error("{0:?} is no host name")]
    Name(String),
    #[error("TLS with {to}: {cause}")]
    Tls { to: String, cause: String },
    #[error("{}", exchange_error_text(.to, .source))]
    Http {
        to: String,
        #[source]
        source: hyper::Error,
    },
}

/// Text of Go's client for a connection that ends before its answer.
fn exchange_error_text(to: &str, error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let system = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match system {
        Some(system) => format!("read tcp {to}: read: {}", system_error_text(system)),
        None => format!("talking to {to}: {error}"),
    }
}

/// The server that a connection is opened to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// An address or a name.
    pub host: String,
    pub port: u16,
    pub security: Security,
    pub reach: AllowedAddresses,
}

/// Protection of a connection: the certificate that it presents, and those that it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TCP alone.
    Plain,
    /// TLS with our client certificate, towards a certificate of our authority: a kubelet.
    Mutual,
    /// TLS that shows nothing of ours and takes any certificate: whatever a pod serves with is its own affair.
    Unverified,
    /// TLS that the caller configures: a webhook, by [`HookClient`](crate::HookClient).
    Given,
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
    own: OwnAddresses,
    answer_timeout: Duration,
    runtime: Runtime,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub fn new(
        mutual: Arc<ClientConfig>,
        unverified: Arc<ClientConfig>,
        own: OwnAddresses,
        runtime: Runtime,
    ) -> Self {
        Self {
            mutual: Arc::new(ArcSwap::new(mutual)),
            unverified,
            own,
            answer_timeout: ANSWER_TIMEOUT,
            runtime,
        }
    }

    /// The same with another time limit on the beginning of an answer.
    #[must_use]
    pub fn with_answer_timeout(self, answer_timeout: Duration) -> Self {
        Self {
            answer_timeout,
            ..self
        }
    }

    /// Time in which an answer must begin.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Replaces the configuration of new connections with our client certificate, for every clone.
    pub fn replace(&self, mutual: Arc<ClientConfig>) {
        self.mutual.store(mutual);
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Sends one request over a connection of its own. Its address is origin form (`/path?query`); a request without a
    /// `Host` gets the destination's.
    pub async fn send(
        &self,
        to: &Destination,
        mut request: http::Request<OutgoingBody>,
    ) -> Result<http::Response<Incoming>, EgressError> {
        if let Ok(host) = http::HeaderValue::from_str(&to.to_string()) {
            request.headers_mut().entry(http::header::HOST).or_insert(host);
        }
        let stream = self.connect(to).await?;
        let tls = match to.security {
            Security::Plain => return self.exchange(to, stream, request).await,
            Security::Mutual => self.mutual.load_full(),
            Security::Unverified => Arc::clone(&self.unverified),
            Security::Given => return Err(EgressError::Name(to.host.clone())),
        };
        let stream = self.handshake(to, tls, stream).await?;
        self.exchange(to, stream, request).await
    }

    pub(crate) async fn connect(&self, to: &Destination) -> Result<TcpStream, EgressError> {
        let failed = |error: io::Error| EgressError::Connect(dial_error(&to.host, to.port, &error));
        let connecting = async {
            let addresses = self.resolve(to).await?;
            let stream = TcpStream::connect(&addresses[..]).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            keep_alive(&stream);
            Ok(stream)
        };
        let connected = self.runtime.timeout(CONNECT_TIMEOUT, connecting).await;
        connected.map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
    }

    /// The addresses to connect to, every one of them permitted. A name is looked up here and not again, so that what was
    /// looked at is what is connected to.
    async fn resolve(&self, to: &Destination) -> Result<Vec<SocketAddr>, EgressError> {
        let addresses = match to.host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, to.port)],
            Err(_) => tokio::net::lookup_host((to.host.as_str(), to.port))
                .await
                .map_err(|error| EgressError::Connect(dial_error(&to.host, to.port, &error)))?
                .collect(),
        };
        if addresses.is_empty() {
            return Err(EgressError::Refused("no addresses for hostname".to_owned()));
        }
        let permitted = addresses
            .iter()
            .all(|address| to.reach.permits(*address, &self.own));
        match permitted {
            true => Ok(addresses),
            false => Err(EgressError::Refused("address not allowed".to_owned())),
        }
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
        // Dropped before its answer, the request ends its connection.
        let answered = self
            .runtime
            .timeout(self.answer_timeout, sender.send_request(request))
            .await;
        answered.map_err(|_| EgressError::NoAnswer)?.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Empty};
    use rustls::RootCertStore;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    fn dialer(own: OwnAddresses) -> Dialer {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let tls = Arc::new(tls);
        Dialer::new(Arc::clone(&tls), tls, own, Runtime::real())
    }

    async fn send(dialer: &Dialer, host: &str, port: u16, reach: AllowedAddresses) -> EgressError {
        let to = Destination {
            host: host.to_owned(),
            port,
            security: Security::Plain,
            reach,
        };
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let request = http::Request::get("/").body(body).expect("a request");
        dialer.send(&to, request).await.expect_err("no answer")
    }

    #[tokio::test]
    async fn dialer_connects_to_no_address_that_is_not_permitted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let own = |port| OwnAddresses {
            port,
            ..OwnAddresses::default()
        };
        for (dialer, host, reach) in [
            (dialer(own(None)), "127.0.0.1", AllowedAddresses::Global),
            (dialer(own(None)), "localhost", AllowedAddresses::Global),
            (dialer(own(Some(port))), "localhost", AllowedAddresses::Any),
            (dialer(own(Some(port))), "127.0.0.1", AllowedAddresses::Any),
        ] {
            let error = send(&dialer, host, port, reach).await;
            assert!(matches!(error, EgressError::Refused(_)), "{host}: {error}");
        }
        // Nothing has connected: the first connection is the one that is made now.
        let connected = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("a connection");
        let (_, peer) = listener.accept().await.expect("a connection");
        assert_eq!(peer, connected.local_addr().expect("an address"));
    }

    #[tokio::test]
    async fn dialer_times_out_before_the_response_begins() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let silent = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            // Ends when the dialer closes.
            stream.read_to_end(&mut request).await.expect("an end");
            request
        };
        let dialer = dialer(OwnAddresses::default()).with_answer_timeout(Duration::from_millis(50));
        let (request, error) = tokio::join!(silent, send(&dialer, "127.0.0.1", port, AllowedAddresses::Any));
        assert!(request.starts_with(b"GET / HTTP/1.1"));
        assert!(matches!(error, EgressError::NoAnswer), "{error}");
    }
}
