//! Requests passed on to extensions (upstream's `proxyHandler`).
//!
//! A request has passed every filter, and gives its seats back: another server does the work, and a slow one must hold no request
//! else's. The connections are bounded instead, by user, namespace and extension.

use super::table::{ApiService, Extension};
use super::{Aggregation, identity};
use crate::exchange::{RequestExchange, Response};
use crate::filters::body::BodyPermit;
use crate::filters::count::UnderWay;
use crate::filters::priority_and_fairness::Executing;
use crate::filters::too_many;
use crate::kubelet::WantedConnection;
use crate::proxy_headers::{forwarded_for, insert, remove_cross_origin, remove_hop_by_hop, takes_trailers};
use apiserver_egress::{
    ExtensionAnswer, ExtensionError, FORWARDED_HOST, FORWARDED_PROTO, OutgoingBody, tunnel,
};
use apiserver_endpoints::{Body, Query};
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderValue, LOCATION, TE, UPGRADE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use machinery_meta::UserInfo;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Discovery is read by every client, so it waits no longer for one extension.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Parts of a path that names a group version.
const DISCOVERY_PARTS: usize = 3;
const UNAVAILABLE: &str = "service unavailable";

/// A text as Go's `http.Error` writes it.
fn text(status: StatusCode, text: &str) -> Response {
    let mut response = http::Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn unavailable(why: &str) -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

impl Aggregation {
    /// Forwards a request, or answers in the extension's place if it is unreachable.
    pub(crate) async fn answer(&self, own: &ApiService, mut exchange: RequestExchange) -> Response {
        let Some(extension) = own.extension.as_ref().filter(|_| own.is_available) else {
            return self.refused(&exchange, StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
        };
        if let Err(error) = &extension.target {
            return self.refused(&exchange, StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
        }
        let wanted = WantedConnection {
            user: &exchange.context.user,
            namespace: &exchange.info.namespace,
            stream: None,
            extension: Some(&own.name),
        };
        let Some(permit) = self.connections.open(wanted) else {
            return too_many();
        };
        let extensions = exchange.request.extensions();
        // Its seats have bounded how much of it is not counted.
        let body = extensions.get::<BodyPermit>();
        if body.is_some_and(|body| !body.count_for_extension(&self.bodies, &own.name)) {
            return too_many();
        }
        if let Some(executing) = extensions.get::<Executing>() {
            executing.delegate();
        }
        let held = Held {
            client: exchange.request.extensions_mut().remove::<OnUpgrade>(),
            under_way: exchange.request.extensions_mut().remove::<UnderWay>(),
            permit: Box::new(permit),
        };
        let parts = exchange.info.path.trim_matches('/').split('/').count();
        let is_discovery = !exchange.info.is_resource_request && parts == DISCOVERY_PARTS;
        let passing = self.pass(extension, exchange, held);
        match is_discovery {
            false => passing.await,
            true => {
                let passed = self.runtime.timeout(DISCOVERY_TIMEOUT, passing).await;
                passed.unwrap_or_else(|_| {
                    unavailable("error trying to reach service: context deadline exceeded")
                })
            }
        }
    }

    fn refused(&self, exchange: &RequestExchange, status: StatusCode, why: &str) -> Response {
        tracing::debug!(request = %exchange.info, why, "request not passed to an API extension");
        text(status, why)
    }

    async fn pass(&self, extension: &Arc<Extension>, exchange: RequestExchange, held: Held) -> Response {
        let Ok(target) = &extension.target else {
            return unavailable(UNAVAILABLE);
        };
        let request = exchange.request;
        let switch = request.headers().get(UPGRADE).cloned();
        let switch = switch.filter(|_| held.client.is_some() && names_upgrade(&request));
        let passed_on = PassedOn {
            path: &exchange.info.path,
            user: &exchange.context.user,
            audit_id: &exchange.context.audit_id,
            switch: switch.as_ref(),
        };
        let outgoing = match passed_on.request(request) {
            Ok(outgoing) => outgoing,
            Err(why) => return unavailable(&format!("error trying to reach service: {why}")),
        };
        match self.client.send(target, outgoing).await {
            Ok(response) => self.passed(response, switch.is_some(), held),
            Err(ExtensionError::Unresolved(why)) => {
                self.log(extension, &why, "resolving the service of an API service");
                unavailable(UNAVAILABLE)
            }
            Err(ExtensionError::Failed(why)) => {
                self.log(extension, &why, "passing a request on to an API extension");
                unavailable(&format!("error trying to reach service: {why}"))
            }
        }
    }

    fn log(&self, extension: &Extension, why: &str, doing: &'static str) {
        if let Some(left_out) = extension.log.should_log(self.runtime.monotonic()) {
            tracing::info!(why, name = extension.name, left_out, "{doing}");
        }
    }

    fn passed(&self, response: http::Response<ExtensionAnswer>, switches: bool, held: Held) -> Response {
        let code = response.status();
        if code == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = held.client.filter(|_| switches) else {
                return unavailable("the other side switched protocols unasked");
            };
            let (response, upstream) = ExtensionAnswer::upgrade(response);
            tunnel(&self.runtime, client, upstream, (held.permit, held.under_way));
            return response.map(|()| Body::empty());
        }
        if switches && code.as_u16() < 400 {
            return unavailable(&format!(
                "invalid upgrade response: status code {}",
                code.as_u16()
            ));
        }
        if code.is_redirection() && response.headers().contains_key(LOCATION) {
            let why = "the backend attempted to redirect this request, which is not permitted";
            let mut refused = http::Response::new(Body::from(why));
            *refused.status_mut() = StatusCode::BAD_GATEWAY;
            return refused;
        }
        let (mut parts, body) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        remove_cross_origin(&mut parts.headers);
        if parts.status == StatusCode::NOT_MODIFIED {
            // Go's server says nothing of a body that is not there.
            parts.headers.remove(CONTENT_TYPE);
            parts.headers.remove(CONTENT_LENGTH);
        }
        parts.version = http::Version::default();
        parts.extensions.clear();
        // The body keeps the permit.
        http::Response::from_parts(parts, Body::wrap(body).holding(held.permit))
    }
}

/// Parts of a request that stay here, as long as its connection is open.
struct Held {
    client: Option<OnUpgrade>,
    under_way: Option<UnderWay>,
    permit: Box<dyn std::any::Any + Send + Sync>,
}

/// A request as an extension is sent it.
struct PassedOn<'a> {
    /// Decoded, as it was authorized.
    path: &'a str,
    user: &'a UserInfo,
    audit_id: &'a str,
    switch: Option<&'a HeaderValue>,
}

impl PassedOn<'_> {
    fn request(&self, request: Request<Body>) -> Result<Request<OutgoingBody>, String> {
        let (mut parts, mut body) = request.into_parts();
        // Written anew, so that an extension reads in it what was authorized.
        let query = match Query::of(&parts.uri).encoded() {
            query if query.is_empty() => query,
            query => format!("?{query}"),
        };
        parts.uri = format!("{}{query}", encoded(self.path))
            .parse()
            .map_err(|error: http::uri::InvalidUri| error.to_string())?;
        parts.version = http::Version::HTTP_11;
        let headers = &mut parts.headers;
        let permit = parts.extensions.remove::<BodyPermit>();
        let trailers = takes_trailers(headers);
        remove_hop_by_hop(headers);
        // The length is that of the body that is sent, and its continuation was this server's to request.
        for name in [HOST, CONTENT_LENGTH, EXPECT] {
            headers.remove(name);
        }
        if trailers {
            insert(headers, TE, "trailers");
        }
        // Last of all, so that nothing that a client says of its connection takes these away.
        identity::set_user(headers, self.user).map_err(|error| error.to_string())?;
        insert(headers, AUDIT_ID, self.audit_id);
        // What a client says of the way to here is not known. Of an upgrade upstream says none of it.
        for name in [FORWARDED_URI, FORWARDED_HOST, FORWARDED_PROTO] {
            headers.remove(name);
        }
        if self.switch.is_none() {
            insert(headers, FORWARDED_URI, &encoded(self.path));
            insert(headers, FORWARDED_PROTO, "https");
        }
        forwarded_for(&mut parts);
        if matches!(parts.method, Method::GET | Method::HEAD) {
            body = Body::empty();
        }
        if let Some(switch) = self.switch {
            insert(&mut parts.headers, CONNECTION, "Upgrade");
            parts.headers.insert(UPGRADE, switch.clone());
        }
        parts.extensions.clear();
        // Counted until the last byte is written, which an extension may delay beyond its answer.
        let body = body.map_frame(move |frame| {
            frame.map_data(|bytes| {
                let permit = permit.clone();
                Bytes::from_owner(Counted { bytes, permit })
            })
        });
        Ok(Request::from_parts(parts, body.boxed_unsync()))
    }
}

/// A piece of a body, with what counts its memory.
struct Counted {
    bytes: Bytes,
    #[expect(dead_code, reason = "held, never read")]
    permit: Option<BodyPermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn names_upgrade(request: &Request<Body>) -> bool {
    let values = request.headers().get_all(CONNECTION).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// A decoded path as Go writes it: what was authorized is what an extension reads, however the client escaped it.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            true => out.push(char::from(byte)),
            false => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_escaped_as_go_does() {
        assert_eq!(
            encoded("/apis/a.b/v1/x y/%/é/a:b"),
            "/apis/a.b/v1/x%20y/%25/%C3%A9/a:b"
        );
    }

    #[test]
    fn request_of_an_extension_has_no_header_of_the_connection() {
        let request = Request::post("/apis/a.b/v1/boats%2Fone?timeout=1s")
            .header("connection", "x-remote-user, keep-alive")
            .header("x-remote-user", "root")
            .header("authorization", "Bearer secret")
            .header("cookie", "kept")
            .header("content-length", "999")
            .body(Body::from("{}"))
            .unwrap();
        let user = UserInfo::named("jane", ["g"]);
        let passed_on = PassedOn {
            path: "/apis/a.b/v1/boats/one",
            user: &user,
            audit_id: "id",
            switch: None,
        };
        let sent = passed_on.request(request).unwrap();
        assert_eq!(sent.uri(), "/apis/a.b/v1/boats/one?timeout=1s");
        let mut names: Vec<&str> = sent.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "audit-id",
                "cookie",
                "x-forwarded-proto",
                "x-forwarded-uri",
                "x-remote-group",
                "x-remote-user"
            ]
        );
        assert_eq!(sent.headers()["x-remote-user"], "jane");
    }
}
