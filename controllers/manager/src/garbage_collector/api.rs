//! An API of a few objects in memory, for tests: its answers, and the requests that it received.

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use machinery_client::discovery::{Discovered, DiscoveredResource};
use machinery_client::{ApiResource, Client};
use machinery_meta::syntax;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) type Pieces = BoxStream<'static, Value>;
type Frame = Result<http_body::Frame<Bytes>, std::io::Error>;
pub(super) type Answer = Response<StreamBody<BoxStream<'static, Frame>>>;

/// Answers requests, a millisecond after they came.
pub(super) trait Answers: Send + Sync + 'static {
    fn answer(self: &Arc<Self>, request: &Request<()>, body: &Value, runtime: &Runtime) -> Answer;
}

pub(super) fn client<A: Answers>(api: &Arc<A>, runtime: &Runtime) -> Client {
    let (api, clock) = (api.clone(), runtime.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (api, clock) = (api.clone(), clock.clone());
        async move {
            clock.sleep(Duration::from_millis(1)).await;
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let request = Request::from_parts(parts, ());
            Ok::<_, std::convert::Infallible>(api.answer(&request, &body, &clock))
        }
    });
    Client::in_process(service, runtime.clone())
}

pub(super) fn streamed(status: StatusCode, pieces: Pieces) -> Answer {
    let lines = pieces.map(|piece| Ok(http_body::Frame::data(format!("{piece}\n").into())));
    let mut answer = Response::new(StreamBody::new(lines.boxed()));
    *answer.status_mut() = status;
    answer
}

pub(super) fn one(status: StatusCode, object: Value) -> Answer {
    streamed(status, futures::stream::iter([object]).boxed())
}

pub(super) fn failure(code: u16, reason: &str) -> Answer {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason});
    one(StatusCode::from_u16(code).unwrap(), status)
}

pub(super) fn added(object: Value) -> Value {
    json!({"type": "ADDED", "object": object})
}

/// The end of a watch's first list.
pub(super) fn listed() -> Value {
    json!({"type": "BOOKMARK", "object": {"metadata":
        {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}})
}

/// Discovery of resources that can be collected, the first of a group and plural preferred.
pub(super) fn discovered(resources: &[ApiResource]) -> Discovered {
    let mut out = Discovered::default();
    for resource in resources {
        let known = |own: &DiscoveredResource| own.resource.group_resource() == resource.group_resource();
        let preferred = !out.resources.iter().any(known);
        out.resources.push(DiscoveredResource {
            resource: resource.clone(),
            verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
            subresources: Vec::new(),
            preferred,
        });
    }
    out
}

/// Objects by path. Their watches stay empty.
#[derive(Debug, Default)]
pub(super) struct Objects(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// Ends of watches.
    watches: Vec<mpsc::UnboundedSender<Value>>,
    /// Metadata that a client writes just before a write of the collector.
    concurrent: VecDeque<Value>,
    reads: Vec<String>,
    writes: Vec<String>,
    events: Vec<String>,
    /// Methods of reads and writes, in their order.
    methods: Vec<String>,
}

impl Objects {
    pub(super) fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    pub(super) fn remove(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    /// Ends all watches; they cannot be resumed.
    pub(super) fn expire_watches(&self) {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"});
        for watch in std::mem::take(&mut self.0.lock().unwrap().watches) {
            watch
                .unbounded_send(json!({"type": "ERROR", "object": gone}))
                .unwrap();
        }
    }

    /// Writes metadata just before the collector's next writes, one for each.
    pub(super) fn write_before_writes(&self, metadata: impl IntoIterator<Item = Value>) {
        self.0.lock().unwrap().concurrent.extend(metadata);
    }

    /// Paths of objects that were read.
    pub(super) fn reads(&self) -> Vec<String> {
        self.0.lock().unwrap().reads.clone()
    }

    /// Writes with what they were sent and how they ended.
    pub(super) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    /// Methods of reads and writes of objects, in their order.
    pub(super) fn methods(&self) -> Vec<String> {
        self.0.lock().unwrap().methods.clone()
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.0.lock().unwrap().events.clone()
    }
}

impl Answers for Objects {
    fn answer(self: &Arc<Self>, request: &Request<()>, body: &Value, _: &Runtime) -> Answer {
        let path = request.uri().path().to_owned();
        if request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="))
        {
            let (end, rest) = mpsc::unbounded();
            self.0.lock().unwrap().watches.push(end);
            return streamed(
                StatusCode::OK,
                futures::stream::iter([listed()]).chain(rest).boxed(),
            );
        }
        self.0.lock().unwrap().answer(request.method(), path, body)
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: String, body: &Value) -> Answer {
        self.methods.push(method.to_string());
        match *method {
            Method::GET => {
                let found = self.objects.get(&path).cloned();
                self.reads.push(path);
                found.map_or_else(|| failure(404, "NotFound"), |found| one(StatusCode::OK, found))
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap();
                if !syntax::dns1123_subdomain(name).is_empty() {
                    return failure(422, "Invalid");
                }
                self.events.push(event(body));
                one(StatusCode::CREATED, body.clone())
            }
            _ => self.write(method, path, body),
        }
    }

    fn write(&mut self, method: &Method, path: String, body: &Value) -> Answer {
        let sent = match *method {
            Method::DELETE => format!("{} {}", body["propagationPolicy"], body["preconditions"]),
            _ => body["metadata"].to_string(),
        };
        let (code, answer) = self.written(method, &path, body);
        self.writes
            .push(format!("{method} {path} {sent} {code}").replace('"', ""));
        answer
    }

    fn written(&mut self, method: &Method, path: &str, body: &Value) -> (u16, Answer) {
        let Some(object) = self.objects.get_mut(path) else {
            return (404, failure(404, "NotFound"));
        };
        merge(&mut object["metadata"], self.concurrent.pop_front());
        let conditions = match *method {
            Method::DELETE => &body["preconditions"],
            _ => &body["metadata"],
        };
        let differs =
            |name: &str| !conditions[name].is_null() && conditions[name] != object["metadata"][name];
        if differs("uid") || differs("resourceVersion") {
            return (409, failure(409, "Conflict"));
        }
        if *method == Method::DELETE {
            let gone = self.objects.remove(path).unwrap_or_default();
            return (200, one(StatusCode::OK, gone));
        }
        merge(&mut object["metadata"], Some(body["metadata"].clone()));
        let revision: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        object["metadata"]["resourceVersion"] = json!((revision + 1).to_string());
        (200, one(StatusCode::OK, object.clone()))
    }
}

fn merge(into: &mut Value, from: Option<Value>) {
    for (field, value) in from.iter().flat_map(Value::as_object).flatten() {
        into[field.as_str()] = value.clone();
    }
}

fn event(body: &Value) -> String {
    let about = &body["involvedObject"];
    format!(
        "{} {} {} {} involvedObject{{kind={},apiVersion={}}}",
        body["metadata"]["namespace"].as_str().unwrap(),
        body["type"].as_str().unwrap(),
        body["reason"].as_str().unwrap(),
        body["message"].as_str().unwrap(),
        about["kind"].as_str().unwrap(),
        about["apiVersion"].as_str().unwrap()
    )
}
