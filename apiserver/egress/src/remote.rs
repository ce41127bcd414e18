//! Servers that files of the operator name: issuers of tokens, webhooks that authenticate and authorize.
//!
//! A [`RemoteAccess`] says whom to trust and what to show, a [`Remote`] is one URL with its open connections. Answers are
//! bounded in size; time is the caller's, and a request that is dropped ends its connection. Errors name the URL, and nothing of what
//! was sent.

use crate::address::AllowedAddresses;
use crate::dialer::{Destination, Dialer, Security};
use crate::exchange::{Connection, Outgoing, exchange};
use crate::pool::Pool;
use crate::trust::{self, ClientIdentity, Trust, Trusted};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use hyper::body::Bytes;
use rustls::pki_types::ServerName;
use std::fmt;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// Go's client follows as many.
const MAX_REDIRECTS: usize = 10;

/// Ways to reach a server.
#[derive(Debug, Clone, Default)]
pub struct RemoteOptions<'a> {
    /// Authorities in PEM; this machine's where it is empty.
    pub ca_bundle: &'a [u8],
    /// Any certificate will do.
    pub insecure_skip_tls_verify: bool,
    /// The name in the certificate, where it is not the URL's host.
    pub tls_server_name: Option<String>,
    pub identity: Option<Arc<ClientIdentity>>,
    pub authorization: Option<HeaderValue>,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RemoteAccess {
    trust: Trust,
    server_name: Option<String>,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for RemoteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAccess").finish_non_exhaustive()
    }
}

/// A request without an answer; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error("{url:?} is no URL of a server: {why}")]
    Url { url: String, why: String },
    #[error("unable to load root certificates: {0}")]
    Authorities(String),
    #[error("{method} {url:?}: {why}")]
    Failed {
        method: &'static str,
        url: String,
        why: String,
    },
}

/// An answer, whatever its code.
#[derive(Debug, Clone)]
pub struct RemoteAnswer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl RemoteAccess {
    /// # Errors
    /// The authorities are none.
    pub fn new(options: RemoteOptions<'_>) -> Result<Self, RemoteError> {
        let trusted = match options.insecure_skip_tls_verify {
            true => Trusted::Any,
            false => Trusted::Bundle(options.ca_bundle),
        };
        Ok(Self {
            trust: Trust::build(trusted, options.identity).map_err(RemoteError::Authorities)?,
            server_name: options.tls_server_name,
            authorization: options.authorization,
        })
    }

    /// Gets a document over TLS, and follows redirects that stay with it.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn get(&self, dialer: &Dialer, url: &str, limit: usize) -> Result<RemoteAnswer, RemoteError> {
        let mut at = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let remote = Remote::new(&at, self)?;
            let failed = |why: String| remote.failed(&Method::GET, why);
            if remote.tls.is_none() {
                return Err(failed("the scheme is not https".to_owned()));
            }
            let answer = remote
                .send(dialer, Method::GET, Bytes::new(), (limit, false))
                .await?;
            let location = answer.headers.get(header::LOCATION);
            let Some(location) = location.filter(|_| matches!(answer.code, 301 | 302 | 303 | 307 | 308))
            else {
                return Ok(answer);
            };
            let location = location.to_str().map_err(|error| failed(error.to_string()))?;
            at = match location.strip_prefix('/') {
                Some(path) => format!("https://{}/{path}", remote.authority),
                None => location.to_owned(),
            };
        }
        Err(RemoteError::Failed {
            method: "Get",
            url: url.to_owned(),
            why: format!("stopped after {MAX_REDIRECTS} redirects"),
        })
    }
}

/// One URL.
pub struct Remote {
    host: String,
    port: u16,
    /// Host and port as the URL has them.
    authority: String,
    path_and_query: String,
    /// None for plain HTTP.
    tls: Option<(Trust, ServerName<'static>)>,
    authorization: Option<HeaderValue>,
    pool: Pool<Full<Bytes>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// # Errors
    /// The URL is none.
    pub fn new(url: &str, access: &RemoteAccess) -> Result<Self, RemoteError> {
        let bad = |why: String| RemoteError::Url {
            url: url.to_owned(),
            why,
        };
        let parsed: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
        let secure = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("the scheme is neither https nor http".to_owned())),
        };
        let authority = parsed.authority().filter(|own| !own.host().is_empty());
        let authority = authority.ok_or_else(|| bad("no host".to_owned()))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let tls = match secure {
            true => {
                let name = access.server_name.clone().unwrap_or_else(|| host.clone());
                let name = ServerName::try_from(name).map_err(|error| bad(error.to_string()))?;
                Some((access.trust.clone(), name))
            }
            false => None,
        };
        let path = parsed.path_and_query().map_or("/", |own| own.as_str());
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(if secure { HTTPS } else { HTTP }),
            authority: authority.to_string(),
            path_and_query: match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            },
            tls,
            authorization: access.authorization.clone(),
            pool: Pool::default(),
        })
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path_and_query)
    }

    fn failed(&self, method: &Method, why: String) -> RemoteError {
        RemoteError::Failed {
            method: if *method == Method::POST { "Post" } else { "Get" },
            url: self.url(),
            why,
        }
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn post(
        &self,
        dialer: &Dialer,
        body: Bytes,
        limit: usize,
    ) -> Result<RemoteAnswer, RemoteError> {
        self.send(dialer, Method::POST, body, (limit, false)).await
    }

    /// Posts JSON whose answer counts by its code: of its body no more than `limit` bytes are read.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn deliver(
        &self,
        dialer: &Dialer,
        body: Bytes,
        limit: usize,
    ) -> Result<RemoteAnswer, RemoteError> {
        self.send(dialer, Method::POST, body, (limit, true)).await
    }

    async fn send(
        &self,
        dialer: &Dialer,
        method: Method,
        body: Bytes,
        (limit, leaves_rest): (usize, bool),
    ) -> Result<RemoteAnswer, RemoteError> {
        let request = self.request(&method, body);
        let outgoing = Outgoing {
            request: request.map_err(|error| self.failed(&method, error.to_string()))?,
            limit,
            leaves_rest,
            // The operator's own servers need no room.
            small: usize::MAX,
            room: std::future::ready(()),
        };
        let answer = exchange((&self.pool, dialer.runtime()), self.dial(dialer), outgoing).await;
        let answer = answer.map_err(|why| self.failed(&method, why))?;
        Ok(RemoteAnswer {
            code: answer.head.status.as_u16(),
            headers: answer.head.headers,
            body: answer.body,
        })
    }

    async fn dial(&self, dialer: &Dialer) -> Result<Connection, String> {
        let destination = Destination {
            host: self.host.clone(),
            port: self.port,
            security: Security::Given,
            reach: AllowedAddresses::Configured,
        };
        let stream = dialer.connect(&destination).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some((trust, name)) = &self.tls else {
            return Connection::begin(stream, dialer.runtime()).await;
        };
        let shaken = TlsConnector::from(trust.config())
            .connect(name.clone(), stream)
            .await;
        let stream = shaken.map_err(|error| trust::handshake_error_text(&error))?;
        Connection::begin(stream, dialer.runtime()).await
    }

    fn request(&self, method: &Method, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.path_and_query)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver");
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Full::new(body))
    }
}
