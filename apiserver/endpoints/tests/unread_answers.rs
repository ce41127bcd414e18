//! Answers that nobody reads: large objects in another form than the stored one are counted until their clients have them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::Api;
use http::Method;
use machinery_runtime::Simulation;
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

/// The answer to a write cannot be refused: it waits until others are read or given up.
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
        for (accept, query) in [(YAML, ""), (YAML, "?dryRun=All"), (JSON, "?dryRun=All")] {
            let mut unread = Vec::new();
            while let Ok(answer) = soon(write(accept, unread.len(), query)).await {
                assert_eq!(answer.status(), 200);
                unread.push(answer.into_body());
                assert!(unread.len() < ANSWERS, "none waited");
            }
            // As it is stored it costs a reference.
            assert!(soon(write(JSON, 1, "")).await.is_ok());
            let waiting = write(accept, 2, query);
            drop(unread);
            assert_eq!(waiting.await.status(), 200);
        }
    });
}
