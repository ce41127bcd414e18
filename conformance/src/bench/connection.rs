//! One client: one connection over TLS, with HTTP/1.1 or HTTP/2.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::config::Kubeconfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use secrecy::ExposeSecret;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

/// Version of HTTP that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Address of a server, and credentials for it.
#[derive(Debug, Clone)]
pub struct Target {
    authority: String,
    roots: Arc<rustls::RootCertStore>,
    tls: Arc<rustls::ClientConfig>,
    token: Option<String>,
    /// The address that connections come from, where it is not the usual one.
    source: Option<IpAddr>,
    protocol: Protocol,
}

impl Target {
    /// Reads the current context of a kubeconfig with inline certificate data.
    ///
    /// # Errors
    /// The file cannot be read or lacks a server, a certificate authority or a usable credential.
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let config = Kubeconfig::read_from(path)?;
        let cluster = config.clusters.first().and_then(|named| named.cluster.clone());
        let cluster = cluster.context("the kubeconfig has no cluster")?;
        let user = config
            .auth_infos
            .first()
            .and_then(|named| named.auth_info.clone())
            .unwrap_or_default();
        let server = cluster.server.context("the kubeconfig has no server")?;
        let authority = server
            .strip_prefix("https://")
            .context("the server's URL is not https")?;
        let mut roots = rustls::RootCertStore::empty();
        let ca =
            decode(cluster.certificate_authority_data.as_deref())?.context("no certificate authority")?;
        for certificate in CertificateDer::pem_slice_iter(&ca) {
            roots.add(certificate?)?;
        }
        let roots = Arc::new(roots);
        let builder = trusting(&roots)?;
        let key = user
            .client_key_data
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned());
        let tls = match (
            decode(user.client_certificate_data.as_deref())?,
            decode(key.as_deref())?,
        ) {
            (Some(chain), Some(key)) => {
                let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?
            }
            _ => builder.with_no_client_auth(),
        };
        let token = user
            .token
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned());
        Ok(Self {
            authority: authority.trim_end_matches('/').to_owned(),
            roots,
            tls: Arc::new(tls),
            token,
            source: None,
            protocol: Protocol::Http1,
        })
    }

    /// The same server for a client with this token or anonymous, without a certificate, from this address.
    ///
    /// # Errors
    /// None with the protocols that are built in.
    pub fn for_client(&self, token: Option<String>, source: Option<IpAddr>) -> Result<Self> {
        let tls = trusting(&self.roots)?.with_no_client_auth();
        Ok(Self {
            tls: Arc::new(tls),
            token,
            source,
            ..self.clone()
        })
    }

    /// The same server for the same client with this token.
    pub fn with_token(&self, token: String) -> Self {
        Self {
            token: Some(token),
            ..self.clone()
        }
    }

    /// The same server for the same client over HTTP/2, as client-go speaks it.
    pub fn over_http2(&self) -> Self {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            tls: Arc::new(tls),
            protocol: Protocol::Http2,
            ..self.clone()
        }
    }

    /// The value of the header that proves who the client is.
    pub fn authorization(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        format!("Bearer {token}")
    }

    /// A connection without TLS yet.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn tcp(&self) -> Result<TcpStream> {
        let address = tokio::net::lookup_host(&self.authority).await?.next();
        let address = address.with_context(|| self.authority.clone())?;
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(source) = self.source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        let stream = socket.connect(address).await;
        let stream = stream.with_context(|| self.authority.clone())?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection on which a client says what it likes.
    ///
    /// # Errors
    /// The server does not answer, or its certificate is not trusted.
    pub async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        Ok(connector.connect(name, self.tcp().await?).await?)
    }

    /// Opens a connection of its own.
    ///
    /// # Errors
    /// The server does not answer, or its certificate is not trusted.
    pub async fn connect(&self) -> Result<Connection> {
        let stream = TokioIo::new(self.stream().await?);
        let sender = match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                drive(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                drive(connection);
                Sender::Http2(sender)
            }
        };
        Ok(Connection {
            sender,
            target: self.clone(),
        })
    }
}

/// Reads and writes for a connection until it ends.
#[expect(
    clippy::disallowed_methods,
    reason = "a load generator has no cluster to end with"
)]
fn drive(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
    tokio::spawn(connection);
}

fn trusting(
    roots: &Arc<rustls::RootCertStore>,
) -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    Ok(builder
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots)))
}

fn decode(data: Option<&str>) -> Result<Option<Vec<u8>>> {
    data.map(|text| Ok(base64::engine::general_purpose::STANDARD.decode(text)?))
        .transpose()
}

/// The sending half of a connection.
#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// An open connection that sends one request at a time.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    target: Target,
}

impl Connection {
    /// Sends a request and returns the response with its body still to come.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let authority = &self.target.authority;
        let mut request = Request::builder().method(method);
        // HTTP/2 has the authority in the address, HTTP/1.1 in a header.
        request = match self.target.protocol {
            Protocol::Http1 => request.uri(path).header(header::HOST, authority),
            Protocol::Http2 => request.uri(format!("https://{authority}{path}")),
        };
        if let Some(token) = &self.target.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        Ok(self.sender.send(request.body(Full::new(body))?).await?)
    }

    /// Sends a request and reads the whole answer, which must be a success.
    ///
    /// # Errors
    /// The connection broke or the status is not 2xx; the message carries the answer's text.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
    ) -> Result<Bytes> {
        let response = self.open(method.clone(), path, headers, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "{method} {path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }

    /// A server-side apply of an object in JSON.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn apply(&mut self, path: &str, body: String) -> Result<Bytes> {
        let content = [(header::CONTENT_TYPE, "application/apply-patch+yaml")];
        self.call(Method::PATCH, path, &content, body.into()).await
    }

    /// A JSON write.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn send_json(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let content = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        self.call(method, path, &[(header::CONTENT_TYPE, content)], body.into())
            .await
    }
}
