//! Rows of a watched Table are as old as the object is when they are sent, not when the watch began.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::Api;
use http::Method;
use machinery_runtime::Simulation;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn ages_go_on_while_a_table_is_watched() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Arc::new(Api::new(runtime).await);
        let made = async |name: &str| {
            let map = json!({"metadata": {"name": name}}).to_string();
            let made = api.ask(Method::POST, MAPS, (JSON, JSON), map).await;
            made.json(201).unwrap();
        };
        made("old").await;
        let path = format!("{MAPS}?watch=1&timeoutSeconds=100");
        let watch = api.ask(Method::GET, &path, (JSON, TABLE), "");
        let (watched, ()) = tokio::join!(watch, async {
            api.runtime.sleep(Duration::from_secs(60)).await;
            let change = json!({"data": {"a": "b"}}).to_string();
            let forms = ("application/merge-patch+json", JSON);
            let changed = api
                .ask(Method::PATCH, &format!("{MAPS}/old"), forms, change)
                .await;
            changed.json(200).unwrap();
            made("new").await;
        });
        let text = String::from_utf8(watched.body.to_vec()).unwrap();
        let rows: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["object"]["rows"][0]["cells"].clone())
            .collect();
        assert_eq!(
            rows,
            [
                json!(["old", 0, "0s"]),
                json!(["old", 1, "60s"]),
                json!(["new", 0, "0s"])
            ]
        );
    });
}
