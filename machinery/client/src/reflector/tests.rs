//! Ends of watches.

use super::*;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use machinery_meta::{SharedEvent, SharedEvents, SharedObject};
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use std::sync::Arc;

/// Revisions that were reached.
#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Sink for Told {
    fn upsert(&self, _: RawObject) {}
    fn delete(&self, _: RawObject) {}
    fn replace(&self, _: Vec<RawObject>) {}
    fn reached(&self, revision: Revision) {
        self.0.lock().push(revision.0);
    }
    fn reads_objects(&self) -> bool {
        true
    }
    fn answered(&self, _: bool) {}
    fn forget(&self) {}
}

/// Frames of a server's next watch, before the stream ends or breaks.
struct Watch {
    says: &'static str,
    breaks: bool,
}

const NOTHING: &str = "";
const START: &str = concat!(
    r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","#,
    r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    "\n"
);
const NEWS: &str = concat!(
    r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n","resourceVersion":"2"}}}"#,
    "\n"
);

/// A server whose newest revision is 2 says so to a watch from a later one.
const TOO_LARGE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,"#,
    r#""message":"Timeout: Too large resource version: 9, current: 2","#,
    r#""details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}}"#,
    "\n"
);

/// A request to watch.
struct Asked {
    /// Seconds after the start, rounded down.
    at: u64,
    /// It requested everything there is first.
    is_fresh: bool,
}

/// Revisions reached, and how long after the start each watch was requested, in seconds rounded down.
fn reflect(watches: Vec<Watch>) -> (Vec<u64>, Vec<u64>) {
    let (told, asked) = observe(watches);
    (told, asked.iter().map(|asked| asked.at).collect())
}

/// Revisions reached, and the requests to watch.
fn observe(watches: Vec<Watch>) -> (Vec<u64>, Vec<Asked>) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let (told, asked) = (Arc::new(Told::default()), Arc::new(Mutex::new(Vec::new())));
        let weak: Weak<dyn Sink> = Arc::downgrade(&(told.clone() as Arc<dyn Sink>));
        let (mut left, times, clock) = (watches.into_iter(), asked.clone(), runtime.clone());
        let (done, all_asked) = futures::channel::oneshot::channel::<()>();
        let mut done = Some(done);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            times.lock().push(Asked {
                at: clock.monotonic().as_secs(),
                is_fresh: request.uri().to_string().contains("sendInitialEvents=true"),
            });
            let next = left.next();
            if next.is_none() {
                drop(done.take());
            }
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(stream(next))) }
        });
        let client = Client::in_process(server, runtime.clone());
        let _reflector = runtime.spawn(
            "reflector",
            run(client, runtime.clone(), ListWatch::of::<Pod>(), weak),
        );
        let _ = all_asked.await;
        let told = told.0.lock().clone();
        let asked = std::mem::take(&mut *asked.lock());
        (told, asked)
    })
}

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;

/// The last watch stays open.
fn stream(watch: Option<Watch>) -> StreamBody<futures::stream::BoxStream<'static, Piece>> {
    let Some(watch) = watch else {
        return StreamBody::new(futures::stream::pending().boxed());
    };
    let mut pieces = vec![Ok(http_body::Frame::data(Bytes::from_static(
        watch.says.as_bytes(),
    )))];
    if watch.breaks {
        pieces.push(Err(std::io::ErrorKind::ConnectionReset.into()));
    }
    StreamBody::new(futures::stream::iter(pieces).boxed())
}

fn watch(says: &'static str, breaks: bool) -> Watch {
    Watch { says, breaks }
}

#[test]
fn reflector_watch_that_delivered_is_resumed_at_once() {
    let (told, asked) = reflect(vec![
        watch(START, true),
        watch(NEWS, true),
        watch(NEWS, true),
        watch(NEWS, false),
        watch(NEWS, true),
    ]);
    assert_eq!(told, [1, 2, 2, 2, 2]);
    assert_eq!(asked, [0; 6]);
}

#[test]
fn reflector_watch_that_ends_empty_is_retried_with_backoff() {
    let silent = || watch(NOTHING, true);
    let (_, asked) = reflect(vec![watch(START, false), silent(), silent(), silent(), silent()]);
    let waits: Vec<u64> = asked.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.is_sorted() && waits.last() > waits.first(), "{waits:?}");
}

#[test]
fn reflector_revision_beyond_the_servers_newest_is_listed_anew() {
    let (_, asked) = observe(vec![
        watch(START, true),
        watch(TOO_LARGE, false),
        watch(START, true),
    ]);
    let fresh: Vec<bool> = asked.iter().map(|asked| asked.is_fresh).collect();
    assert_eq!(fresh, [true, false, true, false]);
}

fn shared(json: &'static str) -> SharedObject {
    let (header, revision) = crate::object::parse_header(json.as_bytes()).unwrap();
    let (first, rest) = json.split_at(20);
    let empty = Bytes::new();
    SharedObject {
        header: Arc::new(header),
        revision,
        json: [Bytes::from(first), empty.clone(), Bytes::from(rest), empty],
    }
}

/// Keeps what it reads.
struct Text(String);

impl crate::projection::Projection for Text {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self(String::from_utf8_lossy(json).into_owned()))
    }
}

const FIRST: &str = r#"{"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"1"}}"#;
const SECOND: &str = r#"{"metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"2"},"spec":{}}"#;

#[test]
fn reflector_in_process_delivers_shared_events_in_order_with_the_stored_headers() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let (first, second) = (shared(FIRST), shared(SECOND));
        let stored = second.header.clone();
        let mut batches = vec![
            vec![
                SharedEvent::Set(first.clone()),
                SharedEvent::Reached {
                    revision: Revision(1),
                    ends_initial_events: true,
                },
            ],
            vec![
                SharedEvent::Set(second),
                SharedEvent::Line(Bytes::from(
                    NEWS.trim_end()
                        .replace("\"2\"", "\"3\"")
                        .replace("\"a\"", "\"b\""),
                )),
            ],
            vec![SharedEvent::Gone(SharedObject {
                revision: Revision(4),
                ..first
            })],
        ]
        .into_iter();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let shared = request.extensions().get::<SharedEvents>().unwrap().clone();
            let pieces = futures::stream::iter(batches.by_ref().collect::<Vec<_>>()).map(move |batch| {
                batch.into_iter().for_each(|event| shared.push(event));
                Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::new()))
            });
            let answer =
                http::Response::new(StreamBody::new(pieces.chain(futures::stream::pending()).boxed()));
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let informers = crate::Informers::new(Client::in_process(server, runtime.clone()), runtime.clone());
        let informer = informers.of::<Pod, Text>();
        let (seen, own) = (Arc::new(Mutex::new(Vec::new())), stored.clone());
        let noted = seen.clone();
        let _subscription = informer.on_change(move |change| {
            let latest = change.latest();
            let is_stored = Arc::ptr_eq(&latest.header, &own);
            let gone = change.is_removal();
            noted.lock().push((
                latest.name().to_owned(),
                latest.revision.0,
                latest.projection.0.len(),
                is_stored,
                gone,
            ));
        });
        while informer.position() < Revision(4) {
            runtime.sleep(Duration::from_millis(1)).await;
        }
        let seen = seen.lock().clone();
        let length_of_b = NEWS
            .find(r#"{"metadata""#)
            .map(|at| NEWS.trim_end().len() - at - 1)
            .unwrap();
        let expected = [
            ("a", 1, FIRST.len(), false, false),
            ("a", 2, SECOND.len(), true, false),
            ("b", 3, length_of_b, false, false),
            ("a", 2, SECOND.len(), true, true),
        ];
        let expected = expected
            .map(|(name, revision, length, stored, gone)| (name.to_owned(), revision, length, stored, gone));
        assert_eq!(seen, expected);
    });
}
