//! A webhook of the tests: HTTPS in this process, one behaviour by path.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use crate::tls_server::TlsServer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// See the module.
pub struct HookServer {
    pub address: SocketAddr,
    /// In base64, as configurations have it.
    pub ca_bundle: String,
    seen: Seen,
    tls: TlsServer,
}

type Seen = Arc<Mutex<Vec<(String, Value)>>>;
type Body = BoxBody<Bytes, Infallible>;

impl HookServer {
    pub async fn start(runtime: &Runtime) -> Self {
        let seen = Seen::default();
        let answered = Arc::clone(&seen);
        let answer = move |request| answer(request, Arc::clone(&answered));
        let tls = TlsServer::start(runtime, &["hook.default.svc"], answer).await;
        Self {
            address: tls.address,
            ca_bundle: STANDARD.encode(&tls.authority),
            seen,
            tls,
        }
    }

    /// The client configuration of a path.
    pub fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.ca_bundle})
    }

    /// Requests of reviews that came to a path.
    pub fn seen(&self, path: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|(at, _)| at == path);
        own.map(|(_, review)| review["request"].clone()).collect()
    }

    /// Paths in the order in which they were called, without probes.
    pub fn order(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|(at, _)| !at.starts_with("/probe"));
        own.map(|(at, _)| at.clone()).collect()
    }

    pub fn connections(&self) -> usize {
        self.tls.connections()
    }
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

async fn answer(request: Request<Incoming>, seen: Seen) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    seen.lock().unwrap().push((path.clone(), review.clone()));
    let body = match path.as_str() {
        "/hang" => std::future::pending().await,
        "/huge" => {
            let piece = Bytes::from(vec![b' '; 1 << 16]);
            let frames = stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(piece.clone())));
            StreamBody::new(frames).boxed()
        }
        "/broken" => {
            let mut response = Response::new(whole("it broke"));
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(response);
        }
        "/text" => whole("no JSON"),
        "/nested" => whole("[".repeat(100_000)),
        path if path.starts_with("/convert") => whole(converted(path, &review).to_string()),
        path => whole(reviewed(path, &review).to_string()),
    };
    Ok(Response::new(body))
}

/// Boats of `v1` have `hostPort`, those of `v2` have `host` and `port`.
fn converted(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    let objects = request["objects"].as_array().cloned().unwrap_or_default();
    let objects: Vec<Value> = objects
        .into_iter()
        .map(|mut own| {
            own["apiVersion"] = request["desiredAPIVersion"].clone();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if own["apiVersion"] == "hooks.example/v2" {
                let (host, port) = text(&own["hostPort"])
                    .split_once(':')
                    .map(|(a, b)| (a.to_owned(), b.to_owned()))
                    .unwrap();
                own["host"] = json!(host);
                own["port"] = json!(port);
                own.as_object_mut().unwrap().remove("hostPort");
            } else {
                own["hostPort"] = json!(format!("{}:{}", text(&own["host"]), text(&own["port"])));
                own.as_object_mut().unwrap().remove("host");
                own.as_object_mut().unwrap().remove("port");
            }
            if path == "/convert-renamed" {
                own["metadata"]["name"] = json!("another");
            }
            own
        })
        .collect();
    let result = match path {
        "/convert-refused" => json!({"status": "Failed", "message": "no such boat"}),
        _ => json!({"status": "Success"}),
    };
    let response = json!({"uid": request["uid"], "result": result, "convertedObjects": objects});
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response})
}

/// The review with the answer of a path.
fn reviewed(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    let mut response = match path {
        "/deny" => {
            json!({"allowed": false, "status": {"message": "not today", "code": 418, "reason": "Teapot"}})
        }
        "/deny-silently" => json!({"allowed": false}),
        "/warn" => {
            json!({"allowed": true, "warnings": ["mind the gap"], "auditAnnotations": {"key": "value", "a b": "no"}})
        }
        "/wrong-uid" => json!({"allowed": true, "uid": "another"}),
        _ => json!({"allowed": true}),
    };
    if let Some(patch) = patch(path, request) {
        response["patch"] = json!(STANDARD.encode(patch.to_string()));
        response["patchType"] = json!("JSONPatch");
    }
    if response["uid"].is_null() {
        response["uid"] = request["uid"].clone();
    }
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}

fn patch(path: &str, request: &Value) -> Option<Value> {
    let data = &request["object"]["data"];
    let set = |key: &str, value: String| {
        let path = match data.is_object() {
            true => format!("/data/{key}"),
            false => return json!([{"op": "add", "path": "/data", "value": {key: value}}]),
        };
        json!([{"op": "add", "path": path, "value": value}])
    };
    Some(match path {
        // As upstream's conformance webhook: the second stage needs the first.
        "/first" => set("first", "yes".to_owned()),
        "/second" if data["first"] == "yes" => set("second", "yes".to_owned()),
        "/count" => {
            let count: u32 = data["count"]
                .as_str()
                .and_then(|own| own.parse().ok())
                .unwrap_or(0);
            set("count", (count + 1).to_string())
        }
        "/move" => {
            json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}])
        }
        "/break-owners" => {
            let broken = json!([{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"x": 1}}]);
            json!([{"op": "replace", "path": "/metadata/managedFields", "value": broken}])
        }
        "/other-container" => json!([{"op": "add", "path": "/container", "value": "other"}]),
        "/detour" => json!([{"op": "add", "path": "/path", "value": "/detour of/it"}]),
        "/replicas" => json!([{"op": "add", "path": "/spec/minReplicas", "value": 2}]),
        "/more" => {
            json!([{"op": "add", "path": "/spec/unknown", "value": 1}, {"op": "add", "path": "/spec/known", "value": "yes"}])
        }
        "/grow" => {
            let mut steps = vec![json!({"op": "add", "path": "/data", "value": {"a": "x".repeat(1 << 20)}})];
            steps.extend(
                (0..100).map(|at| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{at}")})),
            );
            json!(steps)
        }
        "/deep" => {
            let mut value = json!(1);
            for _ in 0..100 {
                value = json!([value]);
            }
            json!([{"op": "add", "path": "/metadata/annotations", "value": value}])
        }
        _ => return None,
    })
}
