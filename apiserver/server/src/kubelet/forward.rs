//! Sending a request on and passing the answer through.

use super::connections::Permit;
use super::links::Links;
use super::page::{Coding, Page};
use super::path::ProxiedPath;
use crate::filters::count::UnderWay;
use crate::proxy_headers::{forwarded_for, insert, remove_cross_origin, remove_hop_by_hop, takes_trailers};
use apiserver_egress::{Destination, Dialer, EgressError, tunnel};
use apiserver_endpoints::{ApiError, Body};
use apiserver_registry::RegistryError;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, TE, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use machinery_meta::GroupResource;

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// A request on its way to a kubelet, or through the proxy to what a client named.
pub(super) struct Forwarding<'a> {
    pub(super) dialer: &'a Dialer,
    pub(super) to: &'a Destination,
    /// With its query.
    pub(super) path: &'a str,
    pub(super) subresource: &'a str,
    /// Of a proxied request.
    pub(super) proxied: Option<ProxiedPath>,
    /// Kept as long as the connection.
    pub(super) permit: Permit,
}

impl Forwarding<'_> {
    /// Sends the request; joins the connections when the other side switches protocols.
    pub(super) async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, RegistryError> {
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let under_way = request.extensions_mut().remove::<UnderWay>();
        let upgrade = request.headers().get(UPGRADE).cloned();
        let upgrade = upgrade.filter(|_| client.is_some());
        if upgrade.is_none() && self.proxied.is_none() && self.subresource != "log" {
            return Err(RegistryError::BadRequest("Upgrade request required".to_owned()));
        }
        let is_head = *request.method() == Method::HEAD;
        let host = client_host(&request);
        let outgoing = self.outgoing(request, &host, upgrade.as_ref())?;
        let answered = self.dialer.send(self.to, outgoing).await;
        let mut response = answered.map_err(|error| self.unanswered(&error, upgrade.is_some()))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = client else {
                let message = "the other side switched protocols unasked".to_owned();
                return Err(RegistryError::Unavailable(message));
            };
            let upstream = hyper::upgrade::on(&mut response);
            tunnel(self.dialer.runtime(), client, upstream, (self.permit, under_way));
            let (parts, _) = response.into_parts();
            return Ok(Response::from_parts(parts, Body::empty()));
        }
        if upgrade.is_some() && response.status().as_u16() < 400 {
            let code = response.status().as_u16();
            let message = format!("invalid upgrade response: status code {code}");
            return Err(RegistryError::Unclassified(message));
        }
        let (mut parts, body) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        if parts.status == StatusCode::NOT_MODIFIED {
            // Go's server says nothing of a body that is not there.
            parts.headers.remove(CONTENT_TYPE);
            parts.headers.remove(CONTENT_LENGTH);
        }
        // The answer's own framing is recreated for the client's connection.
        parts.version = http::Version::default();
        let links = self.proxied.filter(|_| upgrade.is_none()).map(|path| Links {
            prefix: path.prefix,
            backend: self.to.to_string(),
            client: host,
        });
        let permit = self.permit;
        // The body keeps the permit.
        let body = body.map_frame(move |frame| {
            let _ = &permit;
            frame
        });
        let Some(links) = links else {
            return Ok(Response::from_parts(parts, Body::wrap(body)));
        };
        let body = match passage(&mut parts.headers, links, is_head) {
            Some((coding, links)) => Body::wrap(Page::new(body, coding, links)),
            None => Body::wrap(body),
        };
        Ok(Response::from_parts(parts, body))
    }

    fn outgoing(
        &self,
        request: Request<Body>,
        host: &str,
        upgrade: Option<&HeaderValue>,
    ) -> Result<Request<apiserver_egress::OutgoingBody>, RegistryError> {
        let (mut parts, body) = request.into_parts();
        let path = self.path;
        parts.uri = path
            .parse()
            .map_err(|_| RegistryError::BadRequest(format!("cannot proxy to path {path:?}")))?;
        parts.version = http::Version::HTTP_11;
        let takes_trailers = takes_trailers(&parts.headers);
        remove_hop_by_hop(&mut parts.headers);
        parts.headers.remove(HOST);
        if let Some(proxied) = &self.proxied {
            if takes_trailers {
                insert(&mut parts.headers, TE, "trailers");
            }
            // As upstream: `X-Forwarded-Host` and `-Proto` are not sent, since the host is the client's own.
            forwarded_for(&mut parts);
            insert(&mut parts.headers, HOST, host);
            if upgrade.is_none() {
                insert(&mut parts.headers, FORWARDED_URI, &proxied.whole());
            }
        }
        parts.extensions.clear();
        if let Some(upgrade) = upgrade {
            insert(&mut parts.headers, CONNECTION, "Upgrade");
            parts.headers.insert(UPGRADE, upgrade.clone());
        }
        Ok(Request::from_parts(parts, body.boxed_unsync()))
    }

    /// The answer where there is none.
    fn unanswered(&self, error: &EgressError, upgrades: bool) -> RegistryError {
        tracing::info!(%error, "proxying a request");
        match (error, self.subresource) {
            (EgressError::Refused(why), _) if self.proxied.is_some() => {
                RegistryError::BadRequest(why.clone())
            }
            _ if upgrades => RegistryError::Unclassified(format!("error dialing backend: {error}")),
            (_, "log") => {
                let (to, path) = (self.to, self.path);
                RegistryError::Unclassified(format!("Get \"https://{to}{path}\": {error}"))
            }
            _ => RegistryError::Unavailable(format!("error trying to reach service: {error}")),
        }
    }
}

/// The host of the request: of HTTP/2 it is in the address.
fn client_host(request: &Request<Body>) -> String {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let named = named.or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    named.unwrap_or_default().to_owned()
}

/// Makes the headers of a proxied answer those of one that comes from the proxy; says what is to be done to its body.
fn passage(headers: &mut HeaderMap, links: Links, is_head: bool) -> Option<(Coding, Links)> {
    remove_cross_origin(headers);
    let text = |headers: &HeaderMap, name: HeaderName| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let location = text(headers, LOCATION);
    if !location.is_empty() {
        if let Some(location) = links.rewritten(&location) {
            insert(headers, LOCATION, &location);
        }
        return None;
    }
    let media_type = text(headers, CONTENT_TYPE);
    let is_page = media_type
        .split(';')
        .next()
        .is_some_and(|own| own.trim() == "text/html");
    if !is_page || is_head {
        return None;
    }
    let coding = Coding::of(&text(headers, CONTENT_ENCODING))?;
    headers.remove(CONTENT_LENGTH);
    Some((coding, links))
}

/// Bytes that are read of a kubelet's error.
const COMPLAINT_BYTES_MAX: usize = 50_000;

/// Passes a log's text through, and nothing else that the node says: its headers are not the API server's. Where it
/// refuses, its words become the answer's, as upstream's.
pub(super) async fn check_log(pod: &str, response: Response<Body>) -> Result<Response<Body>, ApiError> {
    let code = response.status().as_u16();
    if (200..=206).contains(&code) {
        let mut log = Response::new(response.into_body());
        let text = HeaderValue::from_static("text/plain");
        log.headers_mut().insert(CONTENT_TYPE, text);
        return Ok(log);
    }
    let body = Limited::new(response.into_body(), COMPLAINT_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|error| RegistryError::Internal(error.to_string()))?;
    let said = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Err(match code {
        400 => RegistryError::BadRequest(said).into(),
        500 => RegistryError::Internal(said).into(),
        _ => ApiError::Answered {
            code,
            resource: GroupResource::new("", "pods/log"),
            name: pod.to_owned(),
        },
    })
}

pub(super) fn redirect(to: &str) -> Result<Response<Body>, RegistryError> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let to =
        HeaderValue::from_str(to).map_err(|_| RegistryError::BadRequest("cannot redirect".to_owned()))?;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::ACCESS_CONTROL_ALLOW_ORIGIN;

    #[tokio::test]
    async fn log_brings_none_of_the_nodes_headers() {
        let said = Response::builder()
            .header(CONTENT_TYPE, "text/html")
            .header("set-cookie", "a=b")
            .header(ACCESS_CONTROL_ALLOW_ORIGIN, "*")
            .body(Body::from("<script>"));
        let log = check_log("p", said.unwrap()).await.unwrap();
        let headers: Vec<(&str, &[u8])> = log
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        assert_eq!(headers, [("content-type", b"text/plain".as_slice())]);
    }
}
