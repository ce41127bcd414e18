//! Bearer tokens of a request's headers, as upstream's `bearertoken.go` and `websocket/protocol.go` find them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;

const WEBSOCKET_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token of a WebSocket cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedToken(&'static str);

/// The token of a request: `Authorization: Bearer`, or a WebSocket subprotocol where browsers cannot set headers.
///
/// # Errors
/// [`MalformedToken`] where the subprotocols name one that cannot be read.
pub fn bearer_token(headers: &HeaderMap) -> Result<Option<String>, MalformedToken> {
    match bearer_word(headers).filter(|token| !token.is_empty()) {
        Some(token) => Ok(Some(token.to_owned())),
        None => websocket_token(headers),
    }
}

/// Returns what stands between the first blank after `Bearer` and the next, as upstream splits it: nothing where two blanks follow
/// each other.
fn bearer_word(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().split(' ');
    let is_bearer = words.next()?.eq_ignore_ascii_case("bearer");
    words.next().filter(|_| is_bearer)
}

/// The warning about a token that is ignored because two blanks stand before it.
pub fn ignored_token_warning(headers: &HeaderMap) -> Option<&'static str> {
    const WARNING: &str =
        "the provided Authorization header contains extra space before the bearer token, and is ignored";
    bearer_word(headers)?.is_empty().then_some(WARNING)
}

/// As upstream's `authentication/request/websocket/protocol.go`: one token, and a protocol beside it to answer with.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, MalformedToken> {
    let refused = |why| Err(MalformedToken(why));
    let upgrades = headers.get(http::header::UPGRADE);
    if !upgrades.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Ok(None);
    }
    let protocols = websocket_protocols(headers);
    let mut tokens = protocols
        .iter()
        .filter_map(|one| one.strip_prefix(WEBSOCKET_PROTOCOL_PREFIX));
    let Some(encoded) = tokens.next() else {
        return Ok(None);
    };
    if tokens.next().is_some() {
        return refused("multiple base64.bearer.authorization tokens specified");
    }
    let Ok(decoded) = URL_SAFE_NO_PAD.decode(encoded) else {
        return refused("invalid base64.bearer.authorization token encoding");
    };
    let Ok(token) = String::from_utf8(decoded) else {
        return refused("invalid base64.bearer.authorization token");
    };
    if protocols.len() == 1 {
        return refused("missing additional subprotocol");
    }
    Ok(Some(token).filter(|token| !token.is_empty()))
}

fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lists
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(',').map(str::trim))
        .collect()
}

/// Takes the token out of a request that it has let in: nobody behind needs it, and what is proxied passes headers on.
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

    #[test]
    fn bearer_token_is_the_second_word_of_the_header() {
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer abc and more", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Bearerabc", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, header.parse().unwrap())]);
            assert_eq!(bearer_token(&headers).unwrap().as_deref(), expected, "{header:?}");
        }
    }
}
