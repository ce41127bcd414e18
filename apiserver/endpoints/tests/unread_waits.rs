//! Answers to writes that wait for room: how many there may be, and when they wait no longer.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use apiserver_registry::RequestContext;
use common::Api;
use http::Method;
use http_body_util::BodyExt;
use machinery_runtime::{Runtime, Simulation, TaskHandle};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LARGE: usize = 900_000;
/// Bytes of the objects that the answers of one account refer to while they wait.
const WAITING: usize = 32 << 20;

/// A tenant whose answers in this form, all unread, leave no room for another one.
struct Crowded {
    api: Arc<Api>,
    form: &'static str,
    unread: Vec<Body>,
}

impl Crowded {
    async fn new(runtime: &Runtime, form: &'static str) -> Self {
        let api = Arc::new(Api::new(runtime.clone()).await);
        let map = json!({"metadata": {"name": "large"}, "data": {"x": "y".repeat(LARGE)}});
        let made = api.ask(Method::POST, MAPS, (JSON, JSON), map.to_string()).await;
        made.json(201).unwrap();
        let mut unread = Vec::new();
        loop {
            let answer = api.answer(&format!("{MAPS}/large"), form).await;
            if answer.status() == 429 {
                return Self { api, form, unread };
            }
            unread.push(answer.into_body());
        }
    }

    /// Begins a change, and returns the code of its answer.
    fn change(
        &self,
        number: usize,
        change: impl FnOnce(&mut RequestContext) + Send + 'static,
    ) -> TaskHandle<u16> {
        let (api, form) = (Arc::clone(&self.api), self.form);
        let patch = json!({"data": {"number": number.to_string()}}).to_string();
        self.api.runtime.spawn("change", async move {
            let headers = [("accept", form), ("content-type", "application/merge-patch+json")];
            let path = format!("{MAPS}/large");
            let answer = api.begin_within(Method::PATCH, &path, &headers, patch, change);
            answer.await.status().as_u16()
        })
    }

    async fn number(mut self) -> String {
        self.unread.clear();
        let answer = self.api.answer(&format!("{MAPS}/large"), JSON).await;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let map: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        map["data"]["number"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn answers_that_wait_for_room_are_bounded_by_account() {
    const CHANGES: usize = 50;
    for form in [JSON, YAML] {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let mut crowded = Crowded::new(&runtime, form).await;
            let mut changes = Vec::new();
            for number in 0..CHANGES {
                changes.push(crowded.change(number, |_| ()));
                runtime.sleep(Duration::from_millis(50)).await;
            }
            let (over, waiting): (Vec<_>, Vec<_>) = changes.into_iter().partition(TaskHandle::is_finished);
            assert!(
                waiting.len() > WAITING / LARGE / 2 && waiting.len() <= WAITING / LARGE,
                "{} of {form} wait",
                waiting.len()
            );
            for code in over {
                assert_eq!(code.await.unwrap(), 504);
            }
            // Waiting requests are answered once there is room, and leave their places to others.
            crowded.unread.clear();
            for code in waiting {
                assert_eq!(code.await.unwrap(), 200);
            }
            assert_eq!(crowded.change(CHANGES, |_| ()).await.unwrap(), 200);
        });
    }
}

/// Heavy work gives its seat back (`heavy_requests_wait_for_their_turn_without_seats` of the server).
#[test]
fn answer_of_a_small_write_waits_for_room_without_a_seat() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let small = |name: &str| json!({"metadata": {"name": name}, "data": {"x": "y".repeat(4_000)}});
        let mut crowded = Crowded::new(&runtime, JSON).await;
        // What is left of the room goes as well.
        let there = small("there").to_string();
        let made = crowded.api.ask(Method::POST, MAPS, (JSON, JSON), there).await;
        made.json(201).unwrap();
        loop {
            let answer = crowded.api.answer(&format!("{MAPS}/there"), JSON).await;
            if answer.status() == 429 {
                break;
            }
            crowded.unread.push(answer.into_body());
        }
        let path = MAPS.to_owned();
        let given_back = Arc::new(AtomicBool::new(false));
        let (api, told) = (Arc::clone(&crowded.api), Arc::clone(&given_back));
        let writing = runtime.spawn("write", async move {
            let headers = [("accept", JSON), ("content-type", JSON)];
            let without_seat = move |ctx: &mut RequestContext| {
                ctx.weight.when_heavy(move || told.store(true, Ordering::Relaxed));
            };
            let body = small("new").to_string();
            let answer = api.begin_within(Method::POST, &path, &headers, body, without_seat);
            answer.await.status().as_u16()
        });
        runtime.sleep(Duration::from_millis(50)).await;
        assert!(!writing.is_finished(), "there is room");
        assert!(given_back.load(Ordering::Relaxed));
        drop(crowded);
        assert_eq!(writing.await.unwrap(), 201);
    });
}

#[test]
fn answer_waits_for_room_until_its_deadline() {
    for form in [JSON, YAML] {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let crowded = Crowded::new(&runtime, form).await;
            let deadline = runtime.monotonic() + Duration::from_secs(2);
            let late = crowded.change(7, move |ctx| ctx.deadline = Some(deadline));
            assert_eq!(late.await.unwrap(), 504);
            assert!(runtime.monotonic() < deadline + Duration::from_secs(1));
            assert_eq!(crowded.number().await, "7", "what was done stands");
        });
    }
}

#[test]
fn answer_whose_client_left_waits_no_longer() {
    for form in [JSON, YAML] {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let crowded = Crowded::new(&runtime, form).await;
            let (told, point) = tokio::sync::oneshot::channel();
            let left = crowded.change(7, |ctx| told.send(ctx.point_of_no_return.clone()).unwrap());
            let point = point.await.unwrap();
            runtime.sleep(Duration::from_secs(1)).await;
            assert!(!left.is_finished());
            assert!(!point.abandon(), "it has written");
            runtime.sleep(Duration::from_millis(100)).await;
            assert!(left.is_finished());
            assert_eq!(crowded.number().await, "7", "what was done stands");
        });
    }
}
