//! Requests to API extensions: servers behind APIServices, called over TLS with a client certificate of this server's.
//!
//! An [`ExtensionTarget`] is one such server; [`ExtensionClient::send`] takes one of its open connections for a request that
//! reads, and dials for any other, so that no change is sent twice. The address that is dialled is looked up at every dial, and
//! held to what a tenant's service may lead to ([`AllowedAddresses::Global`](crate::AllowedAddresses)). An answer streams; its
//! connection waits for the next request once it was read to its end, and closes when it is dropped before.
//!
//! Bounded in time: connecting, the handshake and the beginning of an answer. The rest is the caller's.

mod answer;
mod target;

pub use answer::ExtensionAnswer;
pub use target::ExtensionTarget;

use crate::dialer::{Destination, Dialer, HANDSHAKE_TIMEOUT, OutgoingBody};
use crate::pool;
use answer::GiveBack;
use http::header::{HOST, HeaderValue};
use http::{HeaderName, Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use machinery_meta::reader::ObjectReader;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Header with the scheme by which a request that is passed on reaches its server.
pub const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Header with the host that it is sent to; [`ExtensionClient::send`] writes it beside [`FORWARDED_PROTO`].
pub const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

type Connection = pool::Connection<OutgoingBody>;

/// A request that came to no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExtensionError {
    /// The service leads nowhere.
    #[error("{0}")]
    Unresolved(String),
    /// In the words of Go's client.
    #[error("{0}")]
    Failed(String),
}

/// Sends requests to extensions.
#[derive(Clone)]
pub struct ExtensionClient {
    dialer: Dialer,
    reader: Arc<dyn ObjectReader>,
}

impl fmt::Debug for ExtensionClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionClient").finish_non_exhaustive()
    }
}

/// A connection, and the host that a request over it names.
struct Dialled {
    connection: Connection,
    host: HeaderValue,
}

impl ExtensionClient {
    pub fn new(dialer: Dialer, reader: Arc<dyn ObjectReader>) -> Self {
        Self { dialer, reader }
    }

    /// Sends a request in origin form, without a `Host`, and answers as soon as the answer begins.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn send(
        &self,
        target: &Arc<ExtensionTarget>,
        request: Request<OutgoingBody>,
    ) -> Result<Response<ExtensionAnswer>, ExtensionError> {
        let (parts, body) = request.into_parts();
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if reads && !parts.headers.contains_key(http::header::UPGRADE) {
            let kept = target.pool().take(self.dialer.runtime().monotonic());
            if let Some(connection) = kept {
                // The name of the service: the endpoint of an open connection is not known any more.
                let (namespace, name) = target.service();
                let host = HeaderValue::from_str(&format!("{name}.{namespace}.svc"));
                let host = host.map_err(|error| ExtensionError::Failed(error.to_string()))?;
                let again = Request::from_parts(parts.clone(), nothing());
                match self.exchange(target, Dialled { connection, host }, again).await {
                    // The other side has closed it meanwhile.
                    Err(Exchange::Closed) => {}
                    Err(Exchange::Failed(why)) => return Err(ExtensionError::Failed(why)),
                    Ok(answer) => return Ok(answer),
                }
            }
        }
        let destination = self.resolve(target).await?;
        let dialled = self.dial(target, &destination).await?;
        let sent = self
            .exchange(target, dialled, Request::from_parts(parts, body))
            .await;
        sent.map_err(|error| ExtensionError::Failed(error.text()))
    }

    /// Sends a request over a connection of its own, which is answered in time or fails, and names its endpoint.
    ///
    /// # Errors
    /// The service leads nowhere.
    pub async fn probe(
        &self,
        target: &Arc<ExtensionTarget>,
        request: Request<OutgoingBody>,
        within: Duration,
    ) -> Result<(String, Result<Response<ExtensionAnswer>, String>), ExtensionError> {
        let destination = self.resolve(target).await?;
        let asking = async {
            let dialled = self.dial(target, &destination).await;
            let dialled = dialled.map_err(|error| error.to_string())?;
            let answered = self.exchange(target, dialled, request).await;
            answered.map_err(Exchange::text)
        };
        let answered = self.dialer.runtime().timeout(within, asking).await;
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        let answered = answered.unwrap_or_else(|_| Err(late.to_owned()));
        Ok((destination.to_string(), answered))
    }

    async fn resolve(&self, target: &ExtensionTarget) -> Result<Destination, ExtensionError> {
        let choice = self.dialer.runtime().random_u64();
        let destination = target.destination(&*self.reader, choice).await;
        destination.map_err(ExtensionError::Unresolved)
    }

    async fn dial(
        &self,
        target: &ExtensionTarget,
        destination: &Destination,
    ) -> Result<Dialled, ExtensionError> {
        let runtime = self.dialer.runtime();
        let failed = |why: String| ExtensionError::Failed(why);
        let stream = self.dialer.connect(destination).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        let shaken = runtime
            .timeout(HANDSHAKE_TIMEOUT, target.shake_hands(stream))
            .await;
        let stream = shaken
            .map_err(|_| failed("net/http: TLS handshake timeout".to_owned()))?
            .map_err(failed)?;
        let host = HeaderValue::from_str(&destination.to_string());
        Ok(Dialled {
            host: host.map_err(|error| failed(error.to_string()))?,
            connection: Connection::begin(stream, runtime).await.map_err(failed)?,
        })
    }

    async fn exchange(
        &self,
        target: &Arc<ExtensionTarget>,
        mut dialled: Dialled,
        mut request: Request<OutgoingBody>,
    ) -> Result<Response<ExtensionAnswer>, Exchange> {
        let headers = request.headers_mut();
        // One that is passed on for a client says to whom as well.
        if headers.contains_key(FORWARDED_PROTO) {
            headers.insert(FORWARDED_HOST, dialled.host.clone());
        }
        headers.insert(HOST, dialled.host);
        let sending = dialled.connection.send(request);
        let sent = self
            .dialer
            .runtime()
            .timeout(self.dialer.answer_timeout(), sending)
            .await;
        let answer = sent
            .map_err(|_| Exchange::Failed("timeout awaiting response headers".to_owned()))?
            .map_err(Exchange::of)?;
        let give_back = GiveBack {
            connection: dialled.connection,
            target: Arc::clone(target),
            runtime: self.dialer.runtime().clone(),
        };
        Ok(answer.map(|body: Incoming| ExtensionAnswer::new(body, give_back)))
    }
}

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialled")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// An empty body.
fn nothing() -> OutgoingBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The end of an exchange without an answer.
enum Exchange {
    /// Before anything of the answer came.
    Closed,
    Failed(String),
}

impl Exchange {
    fn text(self) -> String {
        match self {
            Self::Closed => "EOF".to_owned(),
            Self::Failed(why) => why,
        }
    }

    fn of(error: hyper::Error) -> Self {
        match error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
            true => Self::Closed,
            false => Self::Failed(error.to_string()),
        }
    }
}
