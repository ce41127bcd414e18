//! The address of one webhook.

use super::credentials::CredentialsByHost;
use super::gate::{Gate, HookPlace, LargeRoom};
use crate::address::AllowedAddresses;
use crate::dialer::{Destination, Security};
use crate::pool::Pool;
use crate::service;
use crate::trust::{self, Trust, Trusted};
use http::Uri;
use http::header::{HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::body::Bytes;
use machinery_meta::reader::ObjectReader;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const HTTPS: u16 = 443;

/// An address that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("webhook configuration must have either service or URL")]
    Missing,
    #[error("Unparsable URL: {0}")]
    Url(String),
    #[error("unable to load root certificates: {0}")]
    Authorities(String),
    #[error("{0}")]
    Credentials(String),
}

/// The server that a call goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
    Url {
        host: String,
        port: u16,
    },
}

/// See the module.
#[derive(Debug)]
pub struct HookTarget {
    place: Place,
    /// Host and port as a URL has them.
    authority: String,
    path: String,
    server_name: ServerName<'static>,
    trust: Trust,
    /// Of the server's credentials.
    headers: Vec<(HeaderName, HeaderValue)>,
    gate: Gate,
    pool: Pool<Full<Bytes>>,
}

impl HookTarget {
    /// A service of the cluster; its certificate is for `NAME.NAMESPACE.svc`. Without certificates of its own the authorities
    /// of this machine count.
    ///
    /// # Errors
    /// The authorities are none, or the names make no host.
    pub fn service(
        (namespace, name): (&str, &str),
        port: u16,
        path: &str,
        ca_bundle: &[u8],
    ) -> Result<Self, TargetError> {
        let host = format!("{name}.{namespace}.svc");
        let place = Place::Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port,
        };
        Self::new(place, format!("{host}:{port}"), path, &host, ca_bundle)
    }

    /// A URL.
    ///
    /// # Errors
    /// The URL is none, or the authorities are none.
    pub fn url_of(url: &str, ca_bundle: &[u8]) -> Result<Self, TargetError> {
        let parsed: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| TargetError::Url(error.to_string()))?;
        let authority = parsed
            .authority()
            .filter(|own| !own.host().is_empty())
            .ok_or_else(|| TargetError::Url("no host".to_owned()))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let place = Place::Url {
            host: host.clone(),
            port: authority.port_u16().unwrap_or(HTTPS),
        };
        Self::new(place, authority.to_string(), parsed.path(), &host, ca_bundle)
    }

    fn new(
        place: Place,
        authority: String,
        path: &str,
        host: &str,
        ca_bundle: &[u8],
    ) -> Result<Self, TargetError> {
        let server_name = ServerName::try_from(host.to_owned());
        Ok(Self {
            server_name: server_name.map_err(|error| TargetError::Url(error.to_string()))?,
            path: match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            },
            trust: Trust::new(ca_bundle).map_err(TargetError::Authorities)?,
            place,
            authority,
            headers: Vec::new(),
            gate: Gate::new(),
            pool: Pool::default(),
        })
    }

    /// The same webhook, which is shown the credentials for its address.
    ///
    /// # Errors
    /// The credentials cannot be used, or the authorities are none.
    pub fn with_credentials(
        mut self,
        all: &CredentialsByHost,
        ca_bundle: &[u8],
    ) -> Result<Self, TargetError> {
        let own = all.of(&self.host_port()).map_err(TargetError::Credentials)?;
        if let Some(identity) = &own.identity {
            let trust = Trust::showing(Trusted::Bundle(ca_bundle), identity);
            self.trust = trust.map_err(TargetError::Authorities)?;
        }
        self.headers = own.headers;
        Ok(self)
    }

    /// Host and port, as users of credentials are named for them.
    fn host_port(&self) -> String {
        match &self.place {
            Place::Url { port, .. } if !self.authority.ends_with(&format!(":{port}")) => {
                format!("{}:{port}", self.authority)
            }
            _ => self.authority.clone(),
        }
    }

    pub(super) fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Waits for the places of a call for a namespace (empty without one) with so many bytes of objects.
    pub async fn enter<'a>(&'a self, namespace: &'a str, bytes: usize) -> HookPlace<'a> {
        self.gate.enter(namespace, bytes).await
    }

    /// Waits for the room of a large answer; see [`Gate::large`].
    pub(super) async fn large<'a>(&'a self, all: &'a Semaphore) -> LargeRoom<'a> {
        self.gate.large(all).await
    }

    pub(super) fn pool(&self) -> &Pool<Full<Bytes>> {
        &self.pool
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn path_and_query(&self, query: &str) -> String {
        match query {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }

    /// The URL as errors have it.
    pub fn url(&self, query: &str) -> String {
        format!("https://{}{}", self.authority, self.path_and_query(query))
    }

    /// The address to connect to now.
    pub(super) async fn destination(
        &self,
        reader: &dyn ObjectReader,
        choice: u64,
    ) -> Result<Destination, String> {
        let to = |host: String, port, reach| Destination {
            host,
            port,
            security: Security::Given,
            reach,
        };
        match &self.place {
            // A service's endpoints are up to others than the operators that configure webhooks.
            Place::Service {
                namespace,
                name,
                port,
            } => {
                let (host, port) = service::resolve(reader, (namespace, name), *port, choice).await?;
                Ok(to(host, port, AllowedAddresses::Global))
            }
            Place::Url { host, port } => Ok(to(host.clone(), *port, AllowedAddresses::Any)),
        }
    }

    /// The handshake, with a server that shows a certificate for the webhook's name.
    pub(super) async fn shake_hands(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let connector = TlsConnector::from(self.trust.config());
        let shaken = connector.connect(self.server_name.clone(), stream).await;
        shaken.map_err(|error| trust::handshake_error_text(&error))
    }
}
