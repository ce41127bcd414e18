//! Cost of a request and of a watch event for a client: through a `kube::Client` as over a connection, and in the server's process.
//!
//! `cargo test -p machinery-client --test cost -- --ignored --nocapture --test-threads 1` prints CPU time of the thread; under
//! callgrind, run each test alone.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use machinery_client::object::parse_header;
use machinery_client::{Client, Informers};
use machinery_meta::{Revision, SharedEvent, SharedEvents, SharedObject};
use machinery_runtime::Runtime;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use view::View;

const TIMES: u32 = 2_000;

/// CPU time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;
type Pieces = BoxStream<'static, Piece>;

fn piece(bytes: Bytes) -> Piece {
    Ok(http_body::Frame::data(bytes))
}

async fn requests(client: Client) -> Duration {
    client.get_path("/api", &[]).await.unwrap();
    let begun = cpu();
    for _ in 0..TIMES {
        client.get_path("/api", &[]).await.unwrap();
    }
    (cpu() - begun) / TIMES
}

#[tokio::test]
#[ignore = "measures, and asserts nothing about it"]
async fn cost_of_a_request() {
    let answer = || {
        tower::service_fn(|_: http::Request<Body>| async {
            let pieces: Pieces = stream::iter([piece(Bytes::from_static(b"{}"))]).boxed();
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(pieces)))
        })
    };
    let queued = requests(Client::new(
        kube::Client::new(answer(), "default"),
        Runtime::real(),
    ))
    .await;
    let called = requests(Client::in_process(answer(), Runtime::real())).await;
    println!("a request: {queued:?} through the queue of kube::Client, {called:?} called");
}

mod view {
    use machinery_client::Projection;
    use machinery_meta::ObjectHeader;
    use serde::Deserialize;

    /// A reader of one field.
    pub(super) struct View;

    #[derive(Deserialize)]
    struct Written {
        #[serde(rename = "spec")]
        _spec: Spec,
    }

    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "nodeName", default)]
        _node_name: String,
    }

    impl Projection for View {
        fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
            serde_json::from_slice::<Written>(json).map(|_| Self)
        }
    }
}

/// A pod in every one of so many revisions, as JSON that is cut where storage cuts it.
fn pod(revision: u32) -> [String; 3] {
    let text = include_str!("../testdata/usual_pod.json");
    let json = serde_json::from_str::<Value>(text).unwrap().to_string();
    let (head, rest) = json.split_once(r#""resourceVersion":"#).unwrap();
    let (_, rest) = rest.split_once(',').unwrap();
    [
        format!("{head}\"resourceVersion\":"),
        format!("\"{revision}\""),
        format!(",{rest}"),
    ]
}

/// CPU time of an event, from the server's frame (or record) to the informer's store.
async fn events(is_shared: bool) -> Duration {
    let all: Vec<[String; 3]> = (2..TIMES + 2).map(pod).collect();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let (all, shared) = (all.clone(), request.extensions().get::<SharedEvents>().cloned());
        let header = Arc::new(parse_header(pod(1).concat().as_bytes()).unwrap().0);
        let listed = concat!(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "\n"
        );
        let first = piece(Bytes::from_static(listed.as_bytes()));
        let pieces = stream::iter(all).map(move |[head, revision, rest]| match &shared {
            Some(shared) if is_shared => {
                let parts = [head, revision.clone(), rest, String::new()].map(Bytes::from);
                let revision = Revision(revision.trim_matches('"').parse().unwrap());
                shared.push(SharedEvent::Set(SharedObject {
                    header: header.clone(),
                    revision,
                    json: parts,
                }));
                piece(Bytes::new())
            }
            _ => piece(Bytes::from(
                [r#"{"type":"MODIFIED","object":"#, &head, &revision, &rest, "}\n"].concat(),
            )),
        });
        let pieces: Pieces = stream::iter([first])
            .chain(pieces)
            .chain(stream::pending())
            .boxed();
        async move { Ok::<_, Infallible>(http::Response::new(StreamBody::new(pieces))) }
    });
    let runtime = Runtime::real();
    let begun = cpu();
    let informers = Informers::new(Client::in_process(server, runtime.clone()), runtime.clone());
    let informer = informers.of::<Pod, View>();
    while informer.position() < Revision(u64::from(TIMES) + 1) {
        runtime.sleep(Duration::from_millis(5)).await;
    }
    (cpu() - begun) / TIMES
}

#[tokio::test]
#[ignore = "measures, and asserts nothing about it"]
async fn cost_of_an_event() {
    let (framed, shared) = (events(false).await, events(true).await);
    println!("an event of a usual pod: {framed:?} as a frame, {shared:?} shared");
}
