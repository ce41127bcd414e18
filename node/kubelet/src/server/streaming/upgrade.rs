//! Protocol that a request selects, and the upgrade of its connection.

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::super::response::{Body, text};

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOL_VERSIONS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

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
    /// The client's first of those both speak.
    pub(super) protocol: &'static str,
    pub(super) connection: OnUpgrade,
    pub(super) response: Response<Body>,
}

/// Answers an upgrade request, or says why not. `web_socket` and `spdy` are the protocols spoken.
///
/// The client's order decides, but for the first of `web_socket`, which is chosen wherever it stands: upstream has another
/// handler for it, which speaks nothing else.
pub(super) fn accept(
    request: &mut Request<Incoming>,
    web_socket: &'static [&'static str],
    spdy: &'static [&'static str],
) -> Result<Accepted, Box<Response<Body>>> {
    let (carrier, protocol, response) = negotiate(request.headers(), web_socket, spdy)?;
    Ok(Accepted {
        carrier,
        protocol,
        connection: hyper::upgrade::on(request),
        response,
    })
}

type Negotiated = (Carrier, &'static str, Response<Body>);

fn negotiate(
    headers: &HeaderMap,
    web_socket: &'static [&'static str],
    spdy: &'static [&'static str],
) -> Result<Negotiated, Box<Response<Body>>> {
    let upgrade = joined(headers, UPGRADE.as_str()).to_ascii_lowercase();
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let answer = response.headers_mut();
    answer.clear();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if upgrade.contains("websocket") {
        let (protocol, key) = web_socket_protocol(headers, web_socket)?;
        answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
        answer.insert(SEC_WEBSOCKET_ACCEPT, key);
        // A request without a protocol gets an answer without one.
        if !protocol.is_empty() {
            answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        Ok((Carrier::WebSocket, protocol, response))
    } else if upgrade.contains("spdy/3.1") {
        let protocol = spdy_protocol(headers, spdy)?;
        answer.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        answer.insert(PROTOCOL_VERSION, HeaderValue::from_static(protocol));
        Ok((Carrier::Spdy, protocol, response))
    } else {
        let words = "unable to upgrade: missing upgrade headers in request";
        Err(refused(StatusCode::BAD_REQUEST, words))
    }
}

/// The protocol, and the answer to the key. Refusals are those of Go's package.
fn web_socket_protocol(
    headers: &HeaderMap,
    spoken: &'static [&'static str],
) -> Result<(&'static str, HeaderValue), Box<Response<Body>>> {
    let offered = joined(headers, SEC_WEBSOCKET_PROTOCOL.as_str());
    let offered: Vec<&str> = offered.split(',').map(str::trim).collect();
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let key = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    let Some(key) = key else {
        return Err(refused(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    };
    let preferred = spoken.first().filter(|first| offered.contains(*first));
    match preferred.copied().or_else(|| first_in_common(&offered, spoken)) {
        Some(protocol) => Ok((protocol, key)),
        None => Err(refused(StatusCode::FORBIDDEN, "")),
    }
}

/// Upstream's `httpstream.Handshake`.
fn spdy_protocol(
    headers: &HeaderMap,
    spoken: &'static [&'static str],
) -> Result<&'static str, Box<Response<Body>>> {
    let bad = |what: String| {
        Err(refused(
            StatusCode::BAD_REQUEST,
            &format!("unable to upgrade: {what}\n"),
        ))
    };
    if !headers.contains_key(PROTOCOL_VERSION) {
        return bad(format!(
            "header X-Stream-Protocol-Version does not exist in request with {} headers",
            headers.keys_len()
        ));
    }
    let given = joined(headers, PROTOCOL_VERSION.as_str());
    let offered: Vec<&str> = given.split(',').map(|one| one.trim_matches(' ')).collect();
    let offered: Vec<&str> = offered.into_iter().filter(|one| !one.is_empty()).collect();
    if offered.is_empty() {
        return bad(format!(
            "header X-Stream-Protocol-Version contains [{given}], but no valid protocols"
        ));
    }
    if let Some(protocol) = first_in_common(&offered, spoken) {
        return Ok(protocol);
    }
    let words = format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]\n",
        offered.join(" "),
        spoken.join(" ")
    );
    let mut refusal = refused(StatusCode::FORBIDDEN, &words);
    for protocol in spoken {
        let value = HeaderValue::from_static(protocol);
        refusal.headers_mut().append(ACCEPTED_PROTOCOL_VERSIONS, value);
    }
    Err(refusal)
}

fn first_in_common(offered: &[&str], spoken: &'static [&'static str]) -> Option<&'static str> {
    offered
        .iter()
        .find_map(|wanted| spoken.iter().copied().find(|protocol| protocol == wanted))
}

fn refused(status: StatusCode, words: &str) -> Box<Response<Body>> {
    Box::new(text(status, words.to_owned()))
}

fn joined(headers: &HeaderMap, name: &str) -> String {
    let values = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB_SOCKET: &[&str] = &["v5", "v4", "base64", ""];
    const SPDY: &[&str] = &["v4", "v3"];

    fn answer(headers: &[(&str, &str)]) -> Result<&'static str, Box<Response<Body>>> {
        let pairs = headers.iter().map(|(name, value)| {
            let name: http::HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        negotiate(&pairs.collect(), WEB_SOCKET, SPDY).map(|(_, protocol, _)| protocol)
    }

    #[test]
    fn upgrade_takes_the_clients_first_protocol() {
        let web_socket = |offered| {
            let headers = [
                ("upgrade", "WebSocket"),
                ("sec-websocket-key", "a"),
                ("sec-websocket-protocol", offered),
            ];
            answer(&headers).map_err(|refusal| refusal.status())
        };
        assert_eq!(web_socket("base64, v4"), Ok("base64"));
        assert_eq!(web_socket("base64,v5"), Ok("v5"), "it stands where it may");
        assert_eq!(web_socket("v9,v4"), Ok("v4"));
        assert_eq!(web_socket(""), Ok(""));
        assert_eq!(web_socket("v9"), Err(StatusCode::FORBIDDEN));
        let keyless = [("upgrade", "websocket"), ("sec-websocket-protocol", "v4")];
        assert_eq!(answer(&keyless).unwrap_err().status(), StatusCode::BAD_REQUEST);
        let spdy = |offered| answer(&[("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", offered)]);
        assert_eq!(spdy("v9, v3,v4").unwrap(), "v3");
        let refusal = spdy("v9,v8").unwrap_err();
        assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
        let accepted = refusal.headers().get_all(ACCEPTED_PROTOCOL_VERSIONS);
        assert_eq!(accepted.iter().collect::<Vec<_>>(), SPDY);
        for unreadable in [Some(" , "), None] {
            let header = unreadable.map(|offered| ("x-stream-protocol-version", offered));
            let headers: Vec<_> = [("upgrade", "spdy/3.1")].into_iter().chain(header).collect();
            assert_eq!(answer(&headers).unwrap_err().status(), StatusCode::BAD_REQUEST);
        }
        assert_eq!(answer(&[]).unwrap_err().status(), StatusCode::BAD_REQUEST);
    }
}
