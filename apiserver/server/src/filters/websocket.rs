//! Watches and logs over a WebSocket, as browsers have them: the same answer, one message for each event of a watch and
//! for each piece of a log.
//!
//! Handlers know nothing of it: the request goes on without its wish to switch, and where the answer is a stream the
//! connection is taken over and the stream sent in messages. Refusals of a handshake are those of Go's package.

use super::count::UnderWay;
use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use crate::state::ServerState;
use apiserver_endpoints::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{Sink, SinkExt, StreamExt};
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// The one version there is.
const VERSION: &str = "13";
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";
/// Bytes of a log in one message.
const PIECE_BYTES: usize = 2048;
/// Time that a client has to answer a close frame.
const PARTING_TIMEOUT: Duration = Duration::from_secs(5);
/// Clients have nothing to say; what they say anyway is read and forgotten.
const MAX_RECEIVED_BYTES: usize = 64 << 10;
/// Events of a watch in protobuf follow their length.
const LENGTH_BYTES: usize = 4;

pub(crate) struct WebSocket(Runtime);

impl WebSocket {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self(core.runtime.clone())
    }
}

impl Filter for WebSocket {
    fn call(&self, mut exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let is_log = exchange.info.subresource == "log";
        let streams = exchange.info.is_resource_request && (is_log || exchange.info.verb == "watch");
        // An extension switches protocols itself.
        if exchange.delegate.is_some() || !streams || !wants_switch(exchange.request.headers()) {
            return next.run(exchange);
        }
        let Some(connection) = exchange.request.extensions_mut().remove::<OnUpgrade>() else {
            return next.run(exchange);
        };
        let requested = take_headers(exchange.request.headers_mut());
        let under_way = exchange.request.extensions_mut().remove::<UnderWay>();
        let runtime = self.0.clone();
        Box::pin(async move {
            let response = next.run(exchange).await;
            if response.status() != StatusCode::OK {
                return response;
            }
            let messages = Messages::of(is_log, response.headers(), &requested);
            match handshake(&requested, is_log) {
                Ok(answer) => {
                    let body = response.into_body();
                    let carried = carry(runtime.clone(), connection, body, messages);
                    let task = async move {
                        carried.await;
                        drop(under_way);
                    };
                    runtime.spawn("websocket", task).detach();
                    answer
                }
                Err(refusal) => *refusal,
            }
        })
    }
}

/// `Connection: upgrade` and `Upgrade: websocket`.
fn wants_switch(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let switches = text(CONNECTION).is_some_and(|value| value.to_ascii_lowercase().contains("upgrade"));
    switches && text(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Takes the headers of the handshake out of the request.
fn take_headers(headers: &mut HeaderMap) -> HeaderMap {
    let mut taken = HeaderMap::new();
    for name in [
        CONNECTION,
        UPGRADE,
        ORIGIN,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_PROTOCOL,
    ] {
        if let Some(value) = headers.remove(&name) {
            taken.insert(name, value);
        }
    }
    taken
}

fn requested_protocols(requested: &HeaderMap) -> Vec<&str> {
    let listed = requested.get(SEC_WEBSOCKET_PROTOCOL);
    let listed = listed.and_then(|value| value.to_str().ok()).unwrap_or_default();
    listed
        .split(',')
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
        .collect()
}

/// The answer that switches, or the refusal.
fn handshake(requested: &HeaderMap, is_log: bool) -> Result<Response, Box<Response>> {
    if requested
        .get(SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != VERSION)
    {
        let mut response = refusal(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static(VERSION);
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
        return Err(response);
    }
    let key = requested.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let Some(key) = key.map(|key| derive_accept_key(key.as_bytes())) else {
        return Err(refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    };
    let protocol = protocol(requested, is_log)?;
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    for (name, text) in [
        (SEC_WEBSOCKET_ACCEPT, Some(key.as_str())),
        (SEC_WEBSOCKET_PROTOCOL, protocol),
    ] {
        let value = text.map(HeaderValue::from_str);
        if let Some(Ok(value)) = value {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// Logs have forms to choose from; a watch has one, takes any single name for it, and requires an origin.
fn protocol(requested: &HeaderMap, is_log: bool) -> Result<Option<&str>, Box<Response>> {
    let names = requested_protocols(requested);
    if is_log {
        let known = names
            .iter()
            .find(|name| [BINARY, BASE64].contains(*name))
            .copied();
        return match known {
            None if !names.is_empty() => Err(refusal(StatusCode::FORBIDDEN, "")),
            known => Ok(known),
        };
    }
    let origin = requested
        .get(ORIGIN)
        .filter(|origin| !origin.is_empty() && *origin != "null");
    if origin.is_none() {
        return Err(refusal(StatusCode::FORBIDDEN, ""));
    }
    match names.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some(name)),
        _ => Err(refusal(StatusCode::BAD_REQUEST, "")),
    }
}

fn refusal(status: StatusCode, text: &'static str) -> Box<Response> {
    let mut response = http::Response::new(Body::from(text));
    *response.status_mut() = status;
    Box::new(response)
}

/// Division of a stream into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Messages {
    /// Each line, as text.
    Lines,
    /// The bytes after each length prefix.
    Counted,
    /// Pieces as they come; first an empty one, so that the client knows that it is served.
    Pieces,
    /// The same in base64, as text.
    Base64,
}

impl Messages {
    fn of(is_log: bool, answer: &HeaderMap, requested: &HeaderMap) -> Self {
        let media_type = answer.get(http::header::CONTENT_TYPE);
        let is_protobuf = media_type.is_some_and(|value| value.as_bytes().starts_with(b"application/vnd.k"));
        let first = requested_protocols(requested)
            .into_iter()
            .find(|name| [BINARY, BASE64].contains(name));
        match (is_log, is_protobuf) {
            (true, _) if first == Some(BASE64) => Self::Base64,
            (true, _) => Self::Pieces,
            (false, true) => Self::Counted,
            (false, false) => Self::Lines,
        }
    }

    /// The next whole message of what has come.
    fn next(self, held: &mut BytesMut) -> Option<Message> {
        match self {
            Self::Lines => {
                let end = held.iter().position(|byte| *byte == b'\n')?;
                let line = held.split_to(end + 1);
                Some(Message::text(String::from_utf8_lossy(&line).into_owned()))
            }
            Self::Counted => {
                let length = held.first_chunk::<LENGTH_BYTES>()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                if held.len() - LENGTH_BYTES < length {
                    return None;
                }
                held.advance(LENGTH_BYTES);
                Some(Message::Binary(held.split_to(length).freeze()))
            }
            Self::Pieces | Self::Base64 if held.is_empty() => None,
            Self::Pieces | Self::Base64 => {
                let piece = held.split_to(held.len().min(PIECE_BYTES)).freeze();
                Some(self.piece(piece))
            }
        }
    }

    fn piece(self, piece: Bytes) -> Message {
        match self {
            Self::Base64 => Message::text(STANDARD.encode(&piece)),
            _ => Message::Binary(piece),
        }
    }
}

/// Sends a stream in messages, until it ends or the client goes.
async fn carry(runtime: Runtime, connection: OnUpgrade, body: Body, messages: Messages) {
    let connection = match connection.await {
        Ok(connection) => TokioIo::new(connection),
        Err(error) => {
            tracing::debug!(%error, "upgrading a connection");
            return;
        }
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_RECEIVED_BYTES))
        .max_frame_size(Some(MAX_RECEIVED_BYTES));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let mut gone = std::pin::pin!(async {
        while let Some(Ok(message)) = stream.next().await {
            if message.is_close() {
                return;
            }
        }
    });
    let sent = tokio::select! { biased;
        () = &mut gone => return,
        sent = send_all(&mut sink, body, messages) => sent,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "websocket ended");
    }
    // A connection closed with bytes unread is reset, and what the client has not read by then may be lost to it.
    let _ = runtime.timeout(PARTING_TIMEOUT, gone).await;
}

async fn send_all<S>(sink: &mut S, mut body: Body, messages: Messages) -> Result<(), Error>
where
    S: Sink<Message, Error = Error> + Unpin,
{
    if matches!(messages, Messages::Pieces | Messages::Base64) {
        sink.send(messages.piece(Bytes::new())).await?;
    }
    let mut held = BytesMut::new();
    // A body that breaks off ends as one that is over: the client asks again.
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        held.extend_from_slice(&data);
        while let Some(message) = messages.next(&mut held) {
            sink.feed(message).await?;
        }
        sink.flush().await?;
    }
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    sink.send(Message::Close(Some(close))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn cut(messages: Messages, stream: &[u8], expected: &[Message], left: usize) {
        let mut held = BytesMut::from(stream);
        let found: Vec<Message> = std::iter::from_fn(|| messages.next(&mut held)).collect();
        assert_eq!(found, expected, "{messages:?}");
        assert_eq!(held.len(), left, "{messages:?}");
    }

    #[test]
    fn websocket_stream_is_split_at_its_frames() {
        cut(
            Messages::Lines,
            b"{1}\n{2}\n{3",
            &[Message::text("{1}\n"), Message::text("{2}\n")],
            2,
        );
        cut(
            Messages::Counted,
            b"\0\0\0\x02ab\0\0\0\x03cd",
            &[Message::Binary(Bytes::from_static(b"ab"))],
            6,
        );
        cut(Messages::Counted, b"\0\0", &[], 2);
        cut(
            Messages::Pieces,
            b"ab",
            &[Message::Binary(Bytes::from_static(b"ab"))],
            0,
        );
        cut(Messages::Base64, b"ab", &[Message::text("YWI=")], 0);
    }

    #[track_caller]
    fn answer(headers: &[(&'static str, &'static str)], is_log: bool, status: u16, protocol: Option<&str>) {
        let mut requested = HeaderMap::new();
        for (name, value) in headers {
            requested.insert(*name, HeaderValue::from_static(value));
        }
        let response = match handshake(&requested, is_log) {
            Ok(response) => response,
            Err(refusal) => *refusal,
        };
        assert_eq!(response.status(), status, "{headers:?}");
        let chosen = response.headers().get(SEC_WEBSOCKET_PROTOCOL);
        assert_eq!(chosen.and_then(|own| own.to_str().ok()), protocol, "{headers:?}");
    }

    #[test]
    fn websocket_handshake_matches_go() {
        const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        const NEW: (&str, &str) = ("sec-websocket-version", "13");
        const FROM: (&str, &str) = ("origin", "https://console");
        let named = |name| ("sec-websocket-protocol", name);
        answer(&[KEY, NEW, FROM], false, 101, None);
        answer(&[KEY, NEW, FROM, named("any")], false, 101, Some("any"));
        answer(&[KEY, NEW, FROM, named("a, b")], false, 400, None);
        answer(&[KEY, NEW], false, 403, None);
        answer(&[KEY, FROM], false, 400, None);
        answer(&[NEW, FROM], false, 400, None);
        answer(&[KEY, NEW], true, 101, None);
        answer(&[KEY, NEW, named("x, binary.k8s.io")], true, 101, Some(BINARY));
        answer(&[KEY, NEW, named("x")], true, 403, None);
    }
}
