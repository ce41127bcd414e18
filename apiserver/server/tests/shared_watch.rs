//! Watches of clients in the server's own process: events are shared as they are stored, and pass what all others pass.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use common::{Cluster, start};
use http::{Method, Request};
use http_body_util::BodyExt;
use machinery_meta::{SharedEvent, SharedEvents, SharedObject, UserInfo};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FROM_STATE: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A watch of a client in this process.
struct Watch {
    code: u16,
    body: Body,
    shared: SharedEvents,
    taken: VecDeque<SharedEvent>,
    runtime: machinery_runtime::Runtime,
}

impl Watch {
    async fn open(cluster: &Cluster, user: UserInfo, query: &str) -> Self {
        let shared = SharedEvents::default();
        let mut request = Request::get(format!("{MAPS}?{query}"))
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(shared.clone());
        let answer = cluster.server.service_as(user).call(request).await.unwrap();
        Self {
            code: answer.status().as_u16(),
            body: answer.into_body(),
            shared,
            taken: VecDeque::new(),
            runtime: cluster.runtime.clone(),
        }
    }

    /// The next event, once a piece of the body announces it; none at the end.
    async fn next(&mut self) -> Option<SharedEvent> {
        while self.taken.is_empty() {
            assert!(
                self.shared.take().is_empty(),
                "events come with a piece that says so"
            );
            let frame = self.runtime.timeout(Duration::from_secs(60), self.body.frame());
            let piece = frame.await.unwrap()?.unwrap().into_data().unwrap();
            assert!(piece.is_empty(), "{piece:?} is encoded");
            self.taken = self.shared.take();
        }
        self.taken.pop_front()
    }

    /// The next object that was added or changed, with the given name.
    async fn set(&mut self, name: &str) -> SharedObject {
        loop {
            match self.next().await.unwrap() {
                SharedEvent::Set(object) if &*object.header.key.name == name => return object,
                SharedEvent::Set(_) | SharedEvent::Reached { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn json_of(object: &SharedObject) -> Value {
    serde_json::from_slice(&object.json.concat()).unwrap()
}

fn admin() -> UserInfo {
    UserInfo::named("admin", [UserInfo::MASTERS])
}

#[tokio::test]
async fn shared_watch_has_the_stored_header_and_the_stored_bytes() {
    let cluster = start().await;
    let map = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}});
    let made = cluster.admin().post(MAPS, map.to_string()).await.is(201).json();
    let mut first = Watch::open(&cluster, admin(), FROM_STATE).await;
    let mut second = Watch::open(&cluster, admin(), FROM_STATE).await;
    let (own, other) = (first.set("a").await, second.set("a").await);
    assert!(
        Arc::ptr_eq(&own.header, &other.header),
        "all watches share one header"
    );
    assert_eq!(own.json[1].as_ptr(), other.json[1].as_ptr(), "and the bytes");
    assert_eq!(json_of(&own), made);
    assert_eq!(own.header.label("l"), Some("1"));
    let mut ends = first.next().await.unwrap();
    while !matches!(ends, SharedEvent::Reached { .. }) {
        ends = first.next().await.unwrap();
    }
    assert!(
        matches!(ends, SharedEvent::Reached { ends_initial_events: true, revision } if revision >= own.revision)
    );
    let path = format!("{MAPS}/a");
    cluster
        .admin()
        .send(Method::DELETE, &path, Default::default())
        .await
        .is(200);
    let SharedEvent::Gone(gone) = first.next().await.unwrap() else {
        panic!("it is gone");
    };
    assert!(gone.revision > own.revision);
    assert_eq!(
        json_of(&gone)["metadata"]["resourceVersion"],
        gone.revision.to_string()
    );
}

#[tokio::test]
async fn shared_watch_is_refused_and_counted_as_any_other() {
    let cluster = start().await;
    let stranger = UserInfo::named("stranger", [UserInfo::AUTHENTICATED]);
    let refused = Watch::open(&cluster, stranger, FROM_STATE).await;
    assert_eq!(refused.code, 403);
    assert!(refused.shared.take().is_empty());
    let map = json!({"metadata": {"name": "b"}, "data": {"k": "x".repeat(3_000)}});
    cluster.admin().post(MAPS, map.to_string()).await.is(201);
    let mut watch = Watch::open(&cluster, admin(), FROM_STATE).await;
    watch.set("b").await;
    let metrics = cluster.admin().get("/metrics").await.body;
    let value = |name: &str| -> f64 {
        let name = format!(r#"{name}{{group="",resource="configmaps",version="v1"}}"#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().trim().parse().unwrap()
    };
    assert!(value("apiserver_watch_events_sizes_sum") > 3_000.0);
    let running = r#"apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps""#;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with(running) && line.ends_with(" 1"))
    );
}

#[tokio::test]
async fn shared_watch_that_fails_says_so_in_a_line() {
    let cluster = start().await;
    let mut watch = Watch::open(&cluster, admin(), "watch=true&resourceVersion=900000").await;
    let Some(SharedEvent::Line(line)) = watch.next().await else {
        panic!("a failure is a line");
    };
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&line["type"], &line["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    assert!(watch.next().await.is_none(), "the watch is over");
}
