//! Watches that their clients do not read: their memory is counted by owner, and those behind for longest end where the share is spent.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use common::{Api, access};
use http::Method;
use http_body_util::BodyExt;
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: &str = "application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LARGE: usize = 900_000;
const WATCHES: usize = 200;
/// A frame that a connection holds.
const PIECE: usize = 16 << 10;
/// An owner's share of what is encoded.
const SHARE: usize = 32 << 20;
/// An event of a large object, with what is around it.
const EVENT: usize = LARGE + 4_096;

const FORMS: [&str; 3] = [
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

async fn with_large_object(runtime: Runtime) -> Api {
    let api = Api::new(runtime).await;
    let annotations = json!({"a": "y".repeat(250_000)});
    let map = json!({
        "metadata": {"name": "large", "annotations": annotations},
        "data": {"x": "y".repeat(LARGE - 250_000)},
    });
    let made = api.ask(Method::POST, MAPS, (JSON, JSON), map.to_string()).await;
    made.json(201).unwrap();
    api
}

/// A watch whose client has taken one frame.
async fn unread(api: &Api, form: &str, more: &str) -> (Body, usize) {
    let path = format!("{MAPS}?watch=1{more}");
    let mut body = api.stream(&path, form).await;
    let frame = body.frame().await.unwrap().unwrap();
    let bytes = frame.data_ref().unwrap().len();
    (body, bytes)
}

#[test]
fn unread_watches_of_one_owner_hold_one_share_in_whatever_form() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut watches = Vec::new();
        for number in 0..WATCHES {
            let more = format!("&includeObject=Object&fieldSelector=metadata.name!%3Dx{number}");
            let (body, bytes) = unread(&api, FORMS[number % FORMS.len()], &more).await;
            assert!(bytes <= 2 * PIECE, "{bytes} bytes in the connection");
            watches.push(body);
            let (held, _) = api.endpoints.unread_memory().figures();
            assert!(held.encoded <= SHARE + EVENT, "{held:?} after {number}");
        }
        let (_, ended) = api.endpoints.unread_memory().figures();
        assert!(ended > 0, "a watch had to end");
        // An ended watch says so, and is not taken for one that is complete.
        let first = watches.remove(0);
        assert!(first.collect().await.is_err());
        drop(watches);
        let (held, _) = api.endpoints.unread_memory().figures();
        assert_eq!((held.encoded, held.referred), (0, 0));
    });
}

#[test]
fn unread_watches_of_stored_objects_hold_references() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            let (body, bytes) = unread(&api, JSON, "").await;
            assert!(bytes <= PIECE, "{bytes} bytes in the connection");
            watches.push(body);
        }
        let (held, ended) = api.endpoints.unread_memory().figures();
        assert_eq!((held.encoded, ended), (0, 0));
        assert!(held.referred > WATCHES * (LARGE - PIECE));
        // References may be to objects that no other request holds: their share is counted as well.
        for _ in 0..400 {
            watches.push(unread(&api, JSON, "").await.0);
        }
        runtime.sleep(Duration::from_secs(60)).await;
        let (held, ended) = api.endpoints.unread_memory().figures();
        assert!(ended > 0 && held.referred <= 8 * SHARE, "{held:?}, {ended} ended");
    });
}

/// A piece every nine seconds keeps no watch that holds what others need.
#[test]
fn watches_that_are_read_too_slowly_end_as_unread_ones_do() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut watches = Vec::new();
        // More than 256 MiB of references.
        for _ in 0..400 {
            watches.push(unread(&api, JSON, "").await.0);
        }
        for _ in 0..6 {
            runtime.sleep(Duration::from_secs(9)).await;
            for body in &mut watches {
                let _ = body.frame().await;
            }
        }
        let (held, ended) = api.endpoints.unread_memory().figures();
        assert!(ended > 0 && held.referred <= 8 * SHARE, "{held:?}, {ended} ended");
    });
}

#[test]
fn watch_that_is_read_loses_nothing_among_unread_ones() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut unread_ones = Vec::new();
        for _ in 0..60 {
            unread_ones.push(unread(&api, FORMS[1], "&includeObject=Object").await.0);
        }
        for form in [FORMS[1], JSON] {
            let path = format!("{MAPS}?watch=1&timeoutSeconds=60&includeObject=Object");
            let read = api.ask(Method::GET, &path, (JSON, form), "");
            let (read, ()) = tokio::join!(read, async {
                runtime.sleep(Duration::from_secs(30)).await;
                let change = json!({"data": {"a": form}}).to_string();
                let forms = ("application/merge-patch+json", JSON);
                let path = format!("{MAPS}/large");
                let changed = api.ask(Method::PATCH, &path, forms, change).await;
                changed.json(200).unwrap();
            });
            let text = String::from_utf8(read.body.to_vec()).unwrap();
            let events: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let types: Vec<&str> = events
                .iter()
                .map(|event| event["type"].as_str().unwrap())
                .collect();
            assert_eq!(types, ["ADDED", "MODIFIED"], "{form}");
            let object = match form == JSON {
                true => &events[1]["object"],
                false => &events[1]["object"]["rows"][0]["object"],
            };
            assert_eq!(object["data"]["a"], form);
            assert_eq!(object["data"]["x"].as_str().unwrap().len(), LARGE - 250_000);
        }
    });
}

#[test]
fn watches_of_another_owner_do_not_wait_for_unread_ones() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut unread_ones = Vec::new();
        while api.endpoints.unread_memory().figures().0.encoded + EVENT <= SHARE {
            unread_ones.push(unread(&api, FORMS[0], "").await.0);
        }
        let others = api.sent_by(access::operator());
        let began = runtime.monotonic();
        unread_ones.push(unread(&others, FORMS[0], "").await.0);
        assert!(runtime.monotonic() - began < Duration::from_secs(1));
        assert_eq!(api.endpoints.unread_memory().figures().1, 0);
    });
}
