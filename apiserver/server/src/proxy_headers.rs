//! Headers of requests and answers that are passed on, to kubelets and pods as to API extensions.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::SocketAddr;

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    // What old clients write in its place.
    HeaderName::from_static("proxy-connection"),
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Adds the client's address behind those that proxies before us added.
pub(crate) fn forwarded_for(parts: &mut http::request::Parts) {
    let Some(client) = parts.extensions.get::<SocketAddr>() else {
        return;
    };
    let known = parts.headers.get_all(FORWARDED_FOR).iter();
    let mut all: Vec<String> = known
        .filter_map(|value| Some(value.to_str().ok()?.to_owned()))
        .collect();
    all.push(client.ip().to_canonical().to_string());
    insert(&mut parts.headers, FORWARDED_FOR, &all.join(", "));
}

pub(crate) fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Some(value) = HeaderValue::from_str(text).ok().filter(|value| !value.is_empty()) {
        headers.insert(name, value);
    }
}

/// Removes what an answer says of other origins: they are this server's to admit.
pub(crate) fn remove_cross_origin(headers: &mut HeaderMap) {
    for name in [
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN,
    ] {
        headers.remove(name);
    }
}

/// Reports whether the client takes trailers, which Go's proxy passes to the other side.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("trailers"))
}

/// Removes what belongs to one connection, also what the other side says of it in `Connection`.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
