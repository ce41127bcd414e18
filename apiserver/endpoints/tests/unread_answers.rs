//! Answers that nobody reads: large objects in another form than the stored one are counted until their clients have them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::Api;
use http::Method;
use machinery_runtime::Simulation;
use serde_json::json;

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
