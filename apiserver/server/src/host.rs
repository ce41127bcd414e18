//! Host of a request of HTTP/1.1: it must be named once, in characters of a name (RFC 9112; the words are Go's).

use crate::exchange::Response;
use apiserver_endpoints::Body;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Version};

/// The answer to a request that names no host, several, or a malformed one.
pub(crate) fn refusal<B>(request: &Request<B>) -> Option<Response> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let problem = match (hosts.next(), hosts.next()) {
        (None, _) => ": missing required Host header",
        (Some(_), Some(_)) => "",
        (Some(host), None) if host.as_bytes().iter().all(|byte| is_allowed(*byte)) => return None,
        (Some(_), None) => ": malformed Host header",
    };
    let mut response = http::Response::new(Body::from(format!("400 Bad Request{problem}")));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// Reports whether a name, an address or a port may contain the byte.
fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(version: Version, hosts: &[&str], refused: bool) {
        let mut request = Request::builder().version(version);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let found = refusal(&request.body(()).unwrap());
        assert_eq!(found.is_some(), refused, "{version:?} {hosts:?}");
    }

    #[test]
    fn host_header_is_unique() {
        check(Version::HTTP_11, &["127.0.0.1:6443"], false);
        check(Version::HTTP_11, &["[::1]:6443"], false);
        check(Version::HTTP_11, &[""], false);
        check(Version::HTTP_11, &[], true);
        check(Version::HTTP_11, &["a", "b"], true);
        check(Version::HTTP_11, &["a b"], true);
        check(Version::HTTP_10, &[], false);
        check(Version::HTTP_2, &[], false);
    }
}
