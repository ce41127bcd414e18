//! Views of what API extensions answer: bounded in memory and time, whatever they say.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body_util::StreamBody;
use kube::client::Body;
use machinery_client::{ApiResource, Client, HeaderStore, Informers, ListWatch, Subscription};
use machinery_meta::ObjectKey;
use machinery_runtime::{AnswerRoom, AnswerRooms, Runtime, Simulation};
use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;
type Pieces = BoxStream<'static, Piece>;

const LISTED: &str = concat!(
    r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","#,
    r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    "\n"
);

fn piece(text: String) -> Piece {
    Ok(http_body::Frame::data(Bytes::from(text)))
}

fn added(name: &str, spec: &str) -> String {
    format!(
        r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"1"}},"spec":"{spec}"}}}}{}"#,
        "\n"
    )
}

fn boats() -> ListWatch {
    ListWatch::all(ApiResource {
        group: Cow::Borrowed("boats.example"),
        version: Cow::Borrowed("v1"),
        plural: Cow::Borrowed("boats"),
        kind: Cow::Borrowed("Boat"),
        namespaced: true,
    })
}

/// An extension that answers each request with the pieces that `says` makes of its number.
struct Extension {
    room: AnswerRoom,
    asked: Arc<Mutex<Vec<Duration>>>,
    store: Arc<dyn HeaderStore>,
    /// Removals, and whether they say that the store no longer sees the object.
    removed: Arc<Mutex<Vec<bool>>>,
    _subscription: Subscription,
}

impl Extension {
    fn new(runtime: &Runtime, says: impl Fn(usize, &Runtime) -> Pieces + Send + Sync + 'static) -> Self {
        let room = Arc::new(AnswerRooms::default()).of("v1.boats.example");
        let asked: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (own, times, clock) = (room.clone(), asked.clone(), runtime.clone());
        let server = tower::service_fn(move |_: http::Request<Body>| {
            times.lock().unwrap().push(clock.monotonic());
            let number = times.lock().unwrap().len() - 1;
            let mut answer = http::Response::new(StreamBody::new(says(number, &clock)));
            answer.extensions_mut().insert(own.clone());
            async move { Ok::<_, Infallible>(answer) }
        });
        let informers = Informers::new(Client::in_process(server, runtime.clone()), runtime.clone());
        let store = informers.headers(boats());
        let removed: Arc<Mutex<Vec<bool>>> = Arc::default();
        let own = removed.clone();
        let subscription = store.on_header_change(Box::new(move |change| {
            assert!(change.of_extension);
            if change.new.is_none() {
                own.lock().unwrap().push(change.forgotten);
            }
        }));
        Self {
            room,
            asked,
            store,
            removed,
            _subscription: subscription,
        }
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.room.hold(bytes).is_some()
    }
}

const MIB: usize = 1 << 20;
/// Room of one extension where no other has any.
const ALL_ROOM: usize = 32 * MIB;

#[test]
fn object_takes_no_more_than_its_header() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let spec = "x".repeat(MIB);
        let objects = (0..100).map(move |number| piece(added(&format!("n{number}"), &spec)));
        let objects = Mutex::new(Some(objects));
        let extension = Extension::new(&runtime, move |_, _| {
            let objects = objects.lock().unwrap().take();
            stream::iter(objects.into_iter().flatten())
                .chain(stream::pending())
                .boxed()
        });
        runtime.sleep(Duration::from_secs(60)).await;
        assert!(
            !extension.store.has_synced(),
            "it does not say that these are all"
        );
        assert!(!extension.has_room_for(ALL_ROOM), "they are kept");
        assert!(extension.has_room_for(ALL_ROOM - MIB), "all 100 in a mebibyte");
    });
}

#[test]
fn extension_without_end_is_not_seen_and_asked_again_later() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let extension = Extension::new(&runtime, |request, _| {
            let lines = move |number: usize| {
                let names = (0..1_000).map(|own| format!("{request}-{number}-{own}"));
                piece(names.map(|name| added(&name, "")).collect())
            };
            let first = stream::iter([piece(added("first", "")), piece(LISTED.to_owned())]);
            first.chain(stream::iter((0..).map(lines))).boxed()
        });
        runtime.sleep(Duration::from_secs(200)).await;
        assert_eq!(extension.asked.lock().unwrap().len(), 1);
        assert!(extension.has_room_for(ALL_ROOM), "all is given back");
        let removed = extension.removed.lock().unwrap().clone();
        assert!(!removed.is_empty() && removed.iter().all(|forgotten| *forgotten));
        assert!(!extension.store.has_synced());
        assert!(extension.store.header(&ObjectKey::new("", "first")).is_none());
        let dropped = "knarr_api_extension_views_dropped_total{name=\"v1.boats.example\"} 1";
        assert!(runtime.metrics().text().contains(dropped));
        runtime.sleep(Duration::from_secs(200)).await;
        assert_eq!(extension.asked.lock().unwrap().len(), 2);
    });
}

#[test]
fn watch_that_never_ends_is_asked_for_again() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let extension = Extension::new(&runtime, |_, clock| {
            let clock = clock.clone();
            let drops = stream::unfold(clock, |clock| async move {
                clock.sleep(Duration::from_secs(100)).await;
                Some((piece("\n".to_owned()), clock))
            });
            stream::iter([piece(LISTED.to_owned())]).chain(drops).boxed()
        });
        runtime.sleep(Duration::from_secs(700)).await;
        assert!(extension.asked.lock().unwrap().len() > 1);
        assert!(extension.store.has_synced());
    });
}

#[test]
fn extension_has_no_more_watches_than_its_places() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let extension = Extension::new(&runtime, |_, _| {
            stream::iter([piece(LISTED.to_owned())])
                .chain(stream::pending())
                .boxed()
        });
        let places: Vec<_> = std::iter::from_fn(|| extension.room.watch()).collect();
        assert!(!places.is_empty());
        runtime.sleep(Duration::from_secs(60)).await;
        assert!(!extension.store.has_synced());
        drop(places);
        runtime.sleep(Duration::from_secs(300)).await;
        assert!(extension.store.has_synced());
    });
}
