//! Answers that their clients do not read: they are counted until their clients have them, in other forms than the stored one with their
//! copies, in the stored one with the objects that they keep from being freed.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use apiserver_registry::RequestContext;
use common::{Api, access};
use http::Method;
use http_body_util::BodyExt;
use machinery_runtime::{Runtime, Simulation};
use serde_json::json;
use std::time::Duration;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// More than a user's part of the 64 MiB of these tests, at twice the object for each.
const ANSWERS: usize = 16;

#[test]
fn unread_answers_of_a_large_object_hold_a_users_part() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::new(runtime.clone()).await;
        let map = json!({"metadata": {"name": "large"}, "data": {"x": "y".repeat(900_000)}});
        let made = api.ask(Method::POST, MAPS, (JSON, JSON), map.to_string()).await;
        made.json(201).unwrap();
        let path = format!("{MAPS}/large");
        let mut unread = Vec::new();
        let refused = loop {
            let answer = api.answer(&path, YAML).await;
            if answer.status() != 200 {
                break answer.status();
            }
            unread.push(answer.into_body());
            assert!(unread.len() < ANSWERS, "none was refused");
        };
        assert_eq!(refused, 429);
        // As it is stored it costs a reference.
        drop(api.stream(&path, JSON).await);
        drop(unread);
        drop(api.stream(&path, YAML).await);
    });
}

/// The answer to a write cannot be refused: it waits until others are read or given up. One to a dry run can.
#[test]
fn unread_answers_to_writes_wait_for_a_users_part() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::new(runtime.clone()).await;
        let map = json!({"metadata": {"name": "large"}, "data": {"x": "y".repeat(900_000)}});
        let made = api.ask(Method::POST, MAPS, (JSON, JSON), map.to_string()).await;
        made.json(201).unwrap();
        let path = format!("{MAPS}/large");
        let write = |accept, number: usize, query| {
            let patch = json!({"data": {"number": number.to_string()}}).to_string();
            let headers = [
                ("accept", accept),
                ("content-type", "application/merge-patch+json"),
            ];
            let (path, api) = (format!("{path}{query}"), &api);
            async move { api.begin(Method::PATCH, &path, &headers, patch).await }
        };
        let soon = |answer| runtime.timeout(Duration::from_millis(100), answer);
        let mut unread = Vec::new();
        while let Ok(answer) = soon(write(YAML, unread.len(), "")).await {
            assert_eq!(answer.status(), 200);
            unread.push(answer.into_body());
            assert!(unread.len() < ANSWERS, "none waited");
        }
        // As it is stored it costs a reference.
        assert!(soon(write(JSON, 1, "")).await.is_ok());
        for accept in [YAML, JSON] {
            let refused = soon(write(accept, 2, "?dryRun=All")).await;
            assert_eq!(refused.map(|answer| answer.status().as_u16()), Ok(429));
        }
        let waiting = write(YAML, 2, "");
        drop(unread);
        assert_eq!(waiting.await.status(), 200);
        assert_eq!(write(JSON, 2, "?dryRun=All").await.status(), 200);
    });
}

const LARGE: usize = 900_000;
/// Bytes that one owner's answers may refer to.
const REFERRED: usize = 256 << 20;

async fn with_large_object(runtime: Runtime) -> Api {
    let api = Api::on_disk(runtime).await;
    let map = json!({"metadata": {"name": "large"}, "data": {"x": "y".repeat(LARGE)}});
    let made = api.ask(Method::POST, MAPS, (JSON, JSON), map.to_string()).await;
    made.json(201).unwrap();
    api
}

/// The answer to a change, unread but for a piece.
async fn changed(api: &Api, number: usize) -> Body {
    let patch = json!({"data": {"number": number.to_string()}}).to_string();
    let headers = [("accept", JSON), ("content-type", "application/merge-patch+json")];
    let path = format!("{MAPS}/large");
    let answer = api.begin(Method::PATCH, &path, &headers, patch).await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert!(frame.data_ref().unwrap().len() <= 16 << 10, "in the connection");
    body
}

#[test]
fn unread_answers_to_writes_in_the_stored_form_hold_one_share() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut unread = Vec::new();
        for number in 0..REFERRED / LARGE + 50 {
            unread.push(changed(&api, number).await);
            let (held, _) = api.endpoints.unread_memory().figures();
            assert!(held.referred <= REFERRED, "{held:?} after {number}");
        }
        let (_, ended) = api.endpoints.unread_memory().figures();
        assert!(ended > 0, "an answer had to end");
        // An ended answer says so, and is not taken for one that is complete.
        assert!(unread.remove(0).collect().await.is_err());
        assert!(unread.pop().unwrap().collect().await.is_ok());
        drop(unread);
        assert_eq!(api.endpoints.unread_memory().figures().0.referred, 0);
    });
}

#[test]
fn unread_reads_of_the_stored_form_are_refused_to_one_owner() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        for path in [format!("{MAPS}/large"), MAPS.to_owned()] {
            let mut unread = Vec::new();
            let refused = loop {
                let answer = api.answer(&path, JSON).await;
                if answer.status() != 200 {
                    break answer.status();
                }
                unread.push(answer.into_body());
                assert!(unread.len() <= REFERRED / LARGE, "none was refused");
            };
            assert_eq!(refused, 429);
            let other = api.sent_by(access::operator()).answer(&path, JSON).await;
            assert_eq!(other.status(), 200);
            // The clients have not read for a while: there is room again.
            runtime.sleep(Duration::from_secs(11)).await;
            drop(api.stream(&path, JSON).await);
        }
    });
}

#[test]
fn unread_list_of_objects_that_change_holds_them_all() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let list = api.stream(MAPS, JSON).await;
        let (held, _) = api.endpoints.unread_memory().figures();
        assert!(held.referred >= LARGE, "{held:?}");
        let collection = api.begin(Method::DELETE, MAPS, &[("accept", JSON)], "").await;
        let (held, _) = api.endpoints.unread_memory().figures();
        assert!(held.referred >= 2 * LARGE, "{held:?}");
        drop((list, collection));
        assert_eq!(api.endpoints.unread_memory().figures().0.referred, 0);
    });
}

#[test]
fn answer_that_is_not_read_on_ends_where_there_is_memory_too() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let path = format!("{MAPS}/large");
        let paused = api.stream(&path, JSON).await;
        let unread = api.stream(&path, JSON).await;
        runtime.sleep(Duration::from_secs(60)).await;
        assert!(paused.collect().await.is_ok(), "a minute is no end");
        runtime.sleep(Duration::from_secs(60)).await;
        assert!(unread.collect().await.is_err());
        assert_eq!(api.endpoints.unread_memory().figures().0.referred, 0);
    });
}

/// 100 KB/s, while the owner's share is spent by answers that are not read.
#[test]
fn answer_that_is_read_slowly_is_whole_among_unread_ones() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let mut slow = api.stream(&format!("{MAPS}/large"), JSON).await;
        let (mut unread, mut read, mut number) = (Vec::new(), 0, 0);
        while let Some(frame) = slow.frame().await {
            read += frame.unwrap().data_ref().unwrap().len();
            for _ in 0..12 {
                number += 1;
                unread.push(changed(&api, number).await);
            }
            runtime.sleep(Duration::from_millis(160)).await;
        }
        assert!(read > LARGE);
        assert!(
            api.endpoints.unread_memory().figures().1 > 0,
            "the share was spent"
        );
    });
}

/// A guest reads on, and holds all of a namespace's share: she gives way to others, until they hold as much as she.
#[test]
fn answers_of_the_account_that_holds_most_give_way_within_a_namespace() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = with_large_object(runtime.clone()).await;
        let guest = api.sent_by(access::operator());
        let path = format!("{MAPS}/large");
        let read = |api: &Api| {
            let (api, path) = (
                api.sent_by(api.user.clone().unwrap_or_else(access::tenant)),
                &path,
            );
            async move {
                let within = |ctx: &mut RequestContext| ctx.namespace = "default".into();
                api.begin_within(Method::GET, path, &[("accept", JSON)], "", within)
                    .await
            }
        };
        let (mut of_guest, mut of_others) = (Vec::new(), Vec::new());
        loop {
            let answer = read(&guest).await;
            if answer.status() != 200 {
                break;
            }
            of_guest.push(answer.into_body());
        }
        runtime.sleep(Duration::from_secs(1)).await;
        loop {
            let answer = read(&api).await;
            if answer.status() != 200 {
                break;
            }
            of_others.push(answer.into_body());
            assert_eq!(read(&guest).await.status(), 429);
        }
        let half = REFERRED / LARGE / 2;
        assert!(
            of_others.len() >= half - 2 && of_others.len() <= half + 2,
            "{}",
            of_others.len()
        );
        for other in of_others {
            assert!(other.collect().await.is_ok());
        }
        let mut whole = 0;
        for body in of_guest {
            whole += usize::from(body.collect().await.is_ok());
        }
        assert!(whole >= half - 2 && whole <= half + 2, "{whole} of the guest's");
    });
}
