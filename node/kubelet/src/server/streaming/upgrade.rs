//! Protocol that a request selects, and the upgrade of its connection.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::super::routes::{Body, text};

/// The connection once taken over.
pub(super) type Taken = TokioIo<Upgraded>;

/// Protocol that carries the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// WebSocket frames.
    WebSocket,
    /// SPDY/3.1 frames.
    Spdy,
}

/// An accepted upgrade: answer with `response`, then work on the connection.
pub(super) struct Accepted {
    pub(super) carrier: Carrier,
    /// The best of those both speak.
    pub(super) protocol: &'static str,
    pub(super) connection: OnUpgrade,
    pub(super) response: Response<Body>,
}

/// Answers an upgrade request, or says why not. `web_socket` and `spdy` are the protocols spoken, best first.
pub(super) fn accept(
    request: &mut Request<Incoming>,
    web_socket: &'static [&'static str],
    spdy: &'static [&'static str],
) -> Result<Accepted, Box<Response<Body>>> {
    let refuse = |message: &'static str| Err(Box::new(text(StatusCode::BAD_REQUEST, message)));
    let headers = request.headers();
    let upgrade = joined(headers, "upgrade").to_ascii_lowercase();
    let carrier = if upgrade.contains("websocket") {
        Carrier::WebSocket
    } else if upgrade.contains("spdy/3.1") {
        Carrier::Spdy
    } else {
        return refuse("unable to upgrade: missing upgrade headers in request");
    };
    let (header, spoken) = match carrier {
        Carrier::WebSocket => ("sec-websocket-protocol", web_socket),
        Carrier::Spdy => ("x-stream-protocol-version", spdy),
    };
    let asked = joined(headers, header);
    let asked: Vec<&str> = asked.split(',').map(str::trim).collect();
    let Some(protocol) = spoken.iter().copied().find(|protocol| asked.contains(protocol)) else {
        return refuse("unable to upgrade: unable to negotiate protocol: no protocol in common");
    };
    let key = headers
        .get("sec-websocket-key")
        .map(|key| derive_accept_key(key.as_bytes()));
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let answer = response.headers_mut();
    answer.clear();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match carrier {
        Carrier::WebSocket => {
            let Some(key) = key.and_then(|key| HeaderValue::from_str(&key).ok()) else {
                return refuse("the WebSocket key is missing");
            };
            answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
            answer.insert("sec-websocket-accept", key);
            // A request without a protocol gets an answer without one.
            if !protocol.is_empty() {
                answer.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
            }
        }
        Carrier::Spdy => {
            answer.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
            answer.insert("x-stream-protocol-version", HeaderValue::from_static(protocol));
        }
    }
    Ok(Accepted {
        carrier,
        protocol,
        connection: hyper::upgrade::on(request),
        response,
    })
}

fn joined(headers: &HeaderMap, name: &str) -> String {
    let values = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}
