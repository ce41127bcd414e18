//! An API extension of the tests: HTTPS in this process, for the cluster's front proxy alone, one behaviour for each server.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use crate::tls_server::TlsServer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

/// Way in which an extension answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Discovery in the aggregated form, and an echo of every other request.
    Good,
    /// The same with plain discovery alone, as old servers have it.
    Plain,
    /// Its group version, and no answer to anything else.
    Hanging,
    /// Documents without end.
    Endless,
    /// Documents that are nested deeply.
    Nested,
    /// The beginning of an answer to whatever has a body, of which it reads nothing.
    Unreading,
    /// Redirects to a server of its choice.
    Redirecting,
    /// An error for everything.
    Broken,
}

/// See the module.
pub struct ExtensionServer {
    pub address: SocketAddr,
    /// In base64, as APIServices have it.
    pub ca_bundle: String,
    seen: Seen,
    tls: TlsServer,
}

/// Requests as they came: method and path, then headers.
type Seen = Arc<Mutex<Vec<(String, HeaderMap)>>>;
type Body = BoxBody<Bytes, Infallible>;

impl ExtensionServer {
    /// Serves as `NAME.default.svc`.
    pub async fn start(
        runtime: &Runtime,
        (name, at): (&str, IpAddr),
        front_proxy: &CertificateDer<'static>,
        manner: Manner,
    ) -> Self {
        let (seen, within) = (Seen::default(), runtime.clone());
        let answered = Arc::clone(&seen);
        let answer = move |request| answer(request, Arc::clone(&answered), manner, within.clone());
        let name = format!("{name}.default.svc");
        let at = (listen(at, manner), &[name.as_str()][..]);
        let tls = TlsServer::start_at(runtime, at, Some(front_proxy), answer);
        Self {
            address: tls.address,
            ca_bundle: STANDARD.encode(&tls.authority),
            seen,
            tls,
        }
    }

    /// Headers of the requests that came to a path, such as `GET /apis`.
    pub fn seen(&self, request: &str) -> Vec<HeaderMap> {
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|(at, _)| at == request);
        own.map(|(_, headers)| headers.clone()).collect()
    }

    pub fn connections(&self) -> usize {
        self.tls.connections()
    }
}

/// Listens at a port of its own. A server that reads nothing has a small buffer, since the kernel would hold whole bodies.
fn listen(at: IpAddr, manner: Manner) -> TcpListener {
    let socket = match at {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.unwrap();
    if manner == Manner::Unreading {
        socket.set_recv_buffer_size(4096).unwrap();
    }
    socket.bind(SocketAddr::new(at, 0)).unwrap();
    socket.listen(1024).unwrap()
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

fn endless() -> Body {
    let piece = Bytes::from(vec![b' '; 1 << 16]);
    let frames = stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(piece.clone())));
    StreamBody::new(frames).boxed()
}

fn json_answer(content_type: &str, value: &Value) -> Response<Body> {
    let mut response = Response::new(whole(value.to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, content_type.parse().unwrap());
    response
}

async fn answer(
    mut request: Request<Incoming>,
    seen: Seen,
    manner: Manner,
    runtime: Runtime,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    seen.lock().unwrap().push((line, request.headers().clone()));
    let is_version = path.starts_with("/apis/") && path.matches('/').count() == 3;
    match manner {
        Manner::Hanging if !is_version => std::future::pending().await,
        Manner::Endless if !is_version => return Ok(Response::new(endless())),
        Manner::Nested if !is_version => {
            let nested = format!("{{\"items\":{}", "[".repeat(200_000));
            let mut response = Response::new(whole(nested));
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            response.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
            return Ok(response);
        }
        Manner::Unreading if request.method() == Method::POST => {
            let held = async move {
                let _unread = request;
                std::future::pending::<()>().await;
            };
            runtime.spawn("test-unread", held).detach();
            let frames = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
            let body = StreamBody::new(futures::StreamExt::chain(frames, stream::pending()));
            return Ok(Response::new(body.boxed()));
        }
        Manner::Redirecting if !is_version => {
            let mut response = Response::new(whole("elsewhere"));
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let to = "https://169.254.169.254/latest/meta-data".parse().unwrap();
            response.headers_mut().insert("location", to);
            return Ok(response);
        }
        Manner::Broken => {
            let mut response = Response::new(whole("it broke"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(response);
        }
        _ => {}
    }
    if request.headers().contains_key(UPGRADE) {
        return Ok(switched(&mut request, &runtime));
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    if query.contains("watch=") {
        let first = Frame::data(Bytes::from_static(b"{\"type\":\"ADDED\"}\n"));
        let frames = stream::iter([Ok::<_, Infallible>(first)]);
        let body = StreamBody::new(futures::StreamExt::chain(frames, stream::pending()));
        return Ok(Response::new(body.boxed()));
    }
    match path.as_str() {
        "/apis" if manner == Manner::Good => {
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return Ok(json_answer(kind, &groups()));
        }
        "/openapi/v3" if manner == Manner::Good => {
            let paths = json!({"paths": {
                "apis/boats.example/v1": {"serverRelativeURL": "/openapi/v3/apis/boats.example/v1?hash=1"},
                "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=forged"},
            }});
            return Ok(json_answer("application/json", &paths));
        }
        "/openapi/v2" if manner == Manner::Good => {
            return Ok(json_answer("application/json", &openapi_v2()));
        }
        "/apis" | "/openapi/v3" | "/openapi/v2" => {
            let mut response = Response::new(whole("no"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
        path if is_version && !path.starts_with("/openapi") => {
            return Ok(json_answer("application/json", &resources(path)));
        }
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let body = String::from_utf8_lossy(&body);
    let echo = json!({"method": parts.method.as_str(), "path": parts.uri.to_string(), "body": body});
    let mut response = json_answer("application/json", &echo);
    for (name, value) in [
        ("x-own", "kept"),
        ("access-control-allow-origin", "*"),
        ("keep-alive", "1"),
    ] {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    Ok(response)
}

/// An echo of bytes.
fn switched(request: &mut Request<Incoming>, runtime: &Runtime) -> Response<Body> {
    let upgrade = hyper::upgrade::on(request);
    let echo = async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..count]).await.unwrap();
        }
    };
    runtime.spawn("test-echo", echo).detach();
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, "Upgrade".parse().unwrap());
    headers.insert(UPGRADE, "echo".parse().unwrap());
    response
}

fn resource(plural: &str, kind: &str) -> Value {
    json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced",
        "singularResource": kind.to_lowercase(), "verbs": ["create", "delete", "get", "list", "watch"], "shortNames": ["bt"],
        "subresources": [{"subresource": "status", "responseKind": null, "verbs": ["get"]}]})
}

/// Groups of a server that claims more than its own.
fn groups() -> Value {
    let group = |name: &str, resources: Value| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]});
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        group("apps", json!([resource("deployments", "Stolen")])),
        group("boats.example", json!([resource("boats", "Boat")])),
        group("unregistered.example", json!([resource("planes", "Plane")])),
    ]})
}

fn resources(path: &str) -> Value {
    json!({"kind": "APIResourceList", "groupVersion": path.trim_start_matches("/apis/"), "resources": [
        {"name": "boats", "singularName": "boat", "namespaced": true, "kind": "Boat", "verbs": ["get", "list"], "shortNames": ["bt"]},
        {"name": "boats/status", "singularName": "", "namespaced": true, "kind": "Boat", "verbs": ["get"]},
    ]})
}

/// A document that has more than its own as well.
fn openapi_v2() -> Value {
    let boat = json!({"$ref": "#/definitions/example.Boat"});
    let list = json!({"get": {"responses": {"200": {"description": "OK", "schema": boat}}}});
    let kinds = json!([{"group": "boats.example", "version": "v1", "kind": "Boat"}, {"group": "apps", "version": "v1", "kind": "Deployment"}]);
    json!({"swagger": "2.0", "paths": {"/apis/boats.example/v1/boats": list, "/apis/apps/v1/forged": list}, "definitions": {
        "example.Boat": {"type": "object", "x-kubernetes-group-version-kind": kinds,
            "properties": {"metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object"},
    }})
}
