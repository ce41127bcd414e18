//! Bearer tokens of a request's headers, as upstream's `bearertoken.go` and `websocket/protocol.go` find them.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

const WEBSOCKET_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
/// An encoding as lenient as Go's `base64.RawURLEncoding`: bits behind the last byte count for nothing.
const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The token of a WebSocket cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedToken(&'static str);

/// The tokens of a request, in the order in which they are tried: `Authorization: Bearer`, and a WebSocket subprotocol where
/// browsers cannot set headers. One that is good is enough, whatever the other is.
///
/// Items are [`MalformedToken`] where the subprotocols name a token that cannot be read.
pub fn bearer_tokens(headers: &HeaderMap) -> impl Iterator<Item = Result<String, MalformedToken>> {
    let word = bearer_credentials(headers).filter(|token| !token.is_empty());
    word.map(Ok)
        .into_iter()
        .chain(websocket_token(headers).transpose())
}

/// Returns what stands between the first blank after `Bearer` and the next, as upstream splits it: nothing where two blanks follow
/// each other. Bytes that are no UTF-8 are no token.
fn bearer_credentials(headers: &HeaderMap) -> Option<String> {
    let value = String::from_utf8_lossy(headers.get(http::header::AUTHORIZATION)?.as_bytes());
    let mut words = value.trim().split(' ');
    let is_bearer = words.next()?.eq_ignore_ascii_case("bearer");
    words.next().filter(|_| is_bearer).map(str::to_owned)
}

/// The warning about a token that is ignored because two blanks stand before it.
pub fn ignored_token_warning(headers: &HeaderMap) -> Option<&'static str> {
    const WARNING: &str =
        "the provided Authorization header contains extra space before the bearer token, and is ignored";
    bearer_credentials(headers)?.is_empty().then_some(WARNING)
}

/// Reads one token, and a protocol beside it to answer with, as upstream's `authentication/request/websocket/protocol.go`.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, MalformedToken> {
    let refused = |why| Err(MalformedToken(why));
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, 0);
    for protocol in websocket_protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(WEBSOCKET_PROTOCOL_PREFIX) else {
            others += 1;
            continue;
        };
        if token.is_some() {
            return refused("multiple base64.bearer.authorization tokens specified");
        }
        let Ok(decoded) = BASE64.decode(encoded) else {
            return refused("invalid base64.bearer.authorization token encoding");
        };
        let Ok(decoded) = String::from_utf8(decoded) else {
            return refused("invalid base64.bearer.authorization token");
        };
        token = Some(decoded);
    }
    let token = token.filter(|token| !token.is_empty());
    if token.is_some() && others == 0 {
        return refused("missing additional subprotocol");
    }
    Ok(token)
}

/// The same as `IsWebSocketRequest` of `k8s.io/streaming`.
fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrades = headers.get(UPGRADE);
    let mut connections = headers.get_all(CONNECTION).iter();
    upgrades.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && connections.any(|value| {
            let words = value.as_bytes().to_ascii_lowercase();
            words.windows(7).any(|word| word == b"upgrade")
        })
}

fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lists
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(',').map(str::trim))
        .collect()
}

/// Takes the token out of a request that it has let in: no later filter needs it, and what is proxied passes headers on.
pub fn forget_token(headers: &mut HeaderMap) {
    headers.remove(http::header::AUTHORIZATION);
    let protocols = websocket_protocols(headers);
    let kept: Vec<&str> = protocols
        .iter()
        .copied()
        .filter(|one| !one.starts_with(WEBSOCKET_PROTOCOL_PREFIX))
        .collect();
    if kept.len() == protocols.len() {
        return;
    }
    // A value that is no text is no protocol, and goes with the token.
    match http::HeaderValue::from_str(&kept.join(",")) {
        Ok(rest) => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
        Err(_) => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = WEBSOCKET_PROTOCOL_PREFIX;

    /// The tokens of a request with these headers, or what is wrong with them.
    fn tokens(pairs: &[(&'static str, &[u8])]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, http::HeaderValue::from_bytes(value).unwrap());
        }
        let tokens = bearer_tokens(&headers);
        tokens
            .map(|token| token.unwrap_or_else(|error| error.to_string()))
            .collect()
    }

    /// Upstream's `bearertoken_test.go`, and requests that both servers received.
    #[test]
    fn bearer_token_is_the_second_word_of_the_header() {
        for (header, expected) in [
            (&b"Bearer abc"[..], &["abc"][..]),
            (b"bearer abc", &["abc"]),
            (b"BEARER abc", &["abc"]),
            (b"  Bearer abc  ", &["abc"]),
            (b"Bearer abc and more", &["abc"]),
            (b"Bearer caf\xe9", &["caf\u{fffd}"]),
            (b"Bearer", &[]),
            (b"Bearer ", &[]),
            (b"Bearer  abc", &[]),
            (b"Bearerabc", &[]),
            (b"Basic abc", &[]),
            (b"", &[]),
        ] {
            assert_eq!(tokens(&[("authorization", header)]), expected, "{header:?}");
        }
    }

    /// Upstream's `websocket/protocol_test.go`, and requests that both servers received.
    #[test]
    fn bearer_token_of_a_websocket_is_a_subprotocol() {
        let ask = |upgrade: &[u8], connection: &[u8], protocols: &[&str]| {
            let mut pairs = vec![("upgrade", upgrade), ("connection", connection)];
            pairs.extend(
                protocols
                    .iter()
                    .map(|list| ("sec-websocket-protocol", list.as_bytes())),
            );
            tokens(&pairs)
        };
        let websocket = |protocols: &[&str]| ask(b"WebSocket", b"keep-alive, Upgrade", protocols);
        let token = format!("{PREFIX}dG9rZW4");
        assert_eq!(websocket(&[&format!("{token}, dummy")]), ["token"]);
        assert_eq!(websocket(&["dummy", &token]), ["token"]);
        // Bits behind the last byte.
        assert_eq!(websocket(&[&format!("{PREFIX}dG9rZW5"), "dummy"]), ["token"]);
        assert_eq!(websocket(&[&token]), ["missing additional subprotocol"]);
        let several = "multiple base64.bearer.authorization tokens specified";
        assert_eq!(websocket(&[&token, "dummy", &token]), [several]);
        let encoding = "invalid base64.bearer.authorization token encoding";
        assert_eq!(
            websocket(&[&format!("{PREFIX}dG9r="), &token, "dummy"]),
            [encoding]
        );
        let invalid = "invalid base64.bearer.authorization token";
        assert_eq!(websocket(&[&format!("{PREFIX}_w"), "dummy"]), [invalid]);
        for none in [&["dummy"][..], &[], &[PREFIX], &[PREFIX, "dummy"]] {
            assert_eq!(websocket(none), Vec::<String>::new(), "{none:?}");
        }
        let both = [token.as_str(), "dummy"];
        assert_eq!(ask(b"websocket", b"close", &both), Vec::<String>::new());
        assert_eq!(ask(b"h2c", b"upgrade", &both), Vec::<String>::new());
    }

    #[test]
    fn bearer_token_of_a_websocket_follows_that_of_the_header() {
        let protocols = format!("{PREFIX}dG9rZW4, dummy");
        let upgrade: [(&str, &[u8]); 3] = [
            ("upgrade", b"websocket"),
            ("connection", b"upgrade"),
            ("sec-websocket-protocol", protocols.as_bytes()),
        ];
        let with = |header: &'static [u8]| tokens(&[&upgrade[..], &[("authorization", header)]].concat());
        assert_eq!(with(b"Bearer bad"), ["bad", "token"]);
        assert_eq!(with(b"Basic bad"), ["token"]);
    }
}
