//! The requests of one connection: counted while they are answered, refused before they are read where their sender may not ask,
//! and answered so that hyper can close the connection.

use crate::accepted_credentials::has_credentials;
use crate::connections::Connection;
use crate::entry::RequestEntry;
use crate::exchange::Peer;
use crate::filters::too_many_after;
use crate::host;
use crate::linger::{Rest, TrackedBody};
use apiserver_endpoints::{Body, BodyError};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use machinery_runtime::{Runtime, UnreadFlag};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Reason phrase of status 413, as Go writes it.
fn too_large() -> ReasonPhrase {
    ReasonPhrase::from_static(b"Request Entity Too Large")
}

/// Answers the requests of a connection.
pub(crate) struct ConnectionRequests {
    pub(crate) peer: Peer,
    pub(crate) front: RequestEntry,
    pub(crate) runtime: Runtime,
    pub(crate) connection: Arc<Connection>,
    /// Set while the body of a request is not read to its end.
    pub(crate) unread: UnreadFlag,
}

impl ConnectionRequests {
    pub(crate) fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Answering>, Infallible>> + use<> {
        let in_flight = InFlight::begin(&self.connection, &self.runtime, request.version());
        let http2 = request.version() == Version::HTTP_2;
        self.unread.head_read(!request.body().is_end_stream());
        // A stream of HTTP/2 ends without its connection.
        if http2 {
            self.unread.leave();
        }
        // A client that waits for `100 Continue` is answered instead.
        let rest = (!request.headers().contains_key(header::EXPECT)).then(Rest::default);
        let left = rest.clone().unwrap_or_default();
        let request = request.map(|body| match http2 || body.is_end_stream() {
            true => Body::wrap(body),
            false => Body::wrap(TrackedBody::new(body, &self.unread, &left)),
        });
        let answer = match self.refusal(&request) {
            Some(refusal) => Box::pin(std::future::ready(refusal)),
            None => self.front.handle(request, self.peer.clone()),
        };
        let ending = Ending {
            rest,
            http2,
            goes_away: http2 && self.goes_away(),
            unread: self.unread.clone(),
            runtime: self.runtime.clone(),
            connection: Arc::clone(&self.connection),
        };
        async move {
            let answer = ending.of(answer.await).await;
            Ok(answer.map(|body| Answering::new(body, in_flight)))
        }
    }

    /// Reports whether the client is to open another connection after this request, by `--goaway-chance`.
    fn goes_away(&self) -> bool {
        let chance = self.front.core.config.goaway_chance;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = self.runtime.random_u64() as f64 / u64::MAX as f64;
        share < chance
    }

    /// The answer to a request that goes no further.
    fn refusal(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let is_taken = || self.connection.admits_anonymous(self.runtime.monotonic());
        match has_credentials(request.headers(), &self.peer) || is_taken() {
            true => host::refusal(request),
            false => Some(too_many_after(1)),
        }
    }
}

/// The end of a request: its connection goes on, or is closed with the answer.
struct Ending {
    /// The rest of the body, where the client sends it without a `100 Continue`.
    rest: Option<Rest>,
    http2: bool,
    /// The connection takes no further requests.
    goes_away: bool,
    unread: UnreadFlag,
    runtime: Runtime,
    connection: Arc<Connection>,
}

impl Ending {
    async fn of(self, mut answer: Response<Body>) -> Response<Body> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.unread.leave();
        }
        if let Some(rest) = self.rest.filter(|_| self.unread.is_unread()) {
            rest.read(&self.unread, &self.runtime).await;
        }
        // HTTP/2 has no such header: the connection is left with GOAWAY, as Go's server does it.
        let closes = self.http2 && answer.headers_mut().remove(header::CONNECTION).is_some();
        if closes || self.goes_away {
            self.connection.leave(self.runtime.monotonic());
        }
        if !self.http2 && answer.status() == StatusCode::PAYLOAD_TOO_LARGE {
            answer.extensions_mut().insert(too_large());
        }
        // The connection ends with such an answer: its client must not send another request on it.
        if self.unread.is_unread() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
        answer
    }
}

/// A request of a connection, until its answer has been sent or it is abandoned.
struct InFlight {
    connection: Arc<Connection>,
    runtime: Runtime,
}

impl InFlight {
    fn begin(connection: &Arc<Connection>, runtime: &Runtime, protocol: Version) -> Self {
        connection.begin_request(protocol, runtime.monotonic());
        Self {
            connection: Arc::clone(connection),
            runtime: runtime.clone(),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.end_request(self.runtime.monotonic());
    }
}

/// An answer's body with its request.
pub(crate) struct Answering {
    body: Body,
    in_flight: InFlight,
    /// There is nothing to wait for but the client.
    sending: bool,
}

impl Answering {
    fn new(body: Body, in_flight: InFlight) -> Self {
        let sending = body.is_at_hand();
        if sending {
            in_flight.connection.begin_sending(in_flight.runtime.monotonic());
        }
        Self {
            body,
            in_flight,
            sending,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.sending {
            self.in_flight.connection.end_sending();
        }
    }
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.sending {
            let in_flight = &self.in_flight;
            in_flight.connection.sent(in_flight.runtime.monotonic());
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
