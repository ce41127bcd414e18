//! Hostile bodies at the door where clients write: server-side apply with the owners that clients may send, definitions of
//! custom kinds, and objects of such a kind. Each is answered; what is refused leaves nothing, and the server goes on.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_registry::custom;
use common::Api;
use http::Method;
use machinery_fuzz::{cost, fuzz, lines};
use machinery_runtime::Simulation;
use std::time::Duration;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// The first of them makes the widgets.
const WIDGET_DEFINITIONS: &str = include_str!("../testdata/fuzz/definitions.txt");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Held by a server with its kinds and its first objects, whatever is sent.
const SERVER_BYTES: usize = 64 << 20;
const HELD_BY_BYTE: usize = 2_000;

/// An address that accepts bodies, and the list in which the objects made from them appear.
#[derive(Clone, Copy)]
struct Door {
    method: &'static Method,
    path: &'static str,
    form: &'static str,
    list: &'static str,
}

const APPLY_CONFIG_MAP: Door = Door {
    method: &Method::PATCH,
    path: "/api/v1/namespaces/default/configmaps/a?fieldManager=m",
    form: APPLY,
    list: "/api/v1/namespaces/default/configmaps",
};
const CREATE_DEFINITION: Door = Door {
    method: &Method::POST,
    path: DEFINITIONS,
    form: JSON,
    list: DEFINITIONS,
};
const CREATE_WIDGET: Door = Door {
    method: &Method::POST,
    path: WIDGETS,
    form: JSON,
    list: WIDGETS,
};

#[test]
fn applied_configurations_are_answered() {
    hostile(include_str!("../testdata/fuzz/applied.txt"), APPLY_CONFIG_MAP);
}

#[test]
fn definitions_are_answered() {
    hostile(WIDGET_DEFINITIONS, CREATE_DEFINITION);
}

#[test]
fn custom_objects_are_answered() {
    hostile(include_str!("../testdata/fuzz/widgets.txt"), CREATE_WIDGET);
}

fn hostile(corpus: &str, door: Door) {
    fuzz(lines(corpus), |input| {
        let body = input.to_vec();
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let sent = async move { sent(&Api::new(runtime).await, door, body).await };
        let ((), cost) = cost(|| simulation.run(sent));
        let most = SERVER_BYTES + HELD_BY_BYTE * input.len();
        assert!(cost.peak <= most, "{} bytes held, {most} are allowed", cost.peak);
        assert!(cost.total <= 16 * most, "{} bytes allocated", cost.total);
    });
}

async fn sent(api: &Api, door: Door, input: Vec<u8>) {
    custom::start(&api.registry).await.unwrap();
    if door.list == WIDGETS {
        let definition = lines(WIDGET_DEFINITIONS).next().unwrap();
        let made = api.ask(Method::POST, DEFINITIONS, (JSON, JSON), definition).await;
        assert_eq!(made.code, 201);
        settled(api).await;
    }
    let revision = async || api.registry.stored().current_revision().await.unwrap();
    let before = revision().await;
    let answer = api
        .ask(door.method.clone(), door.path, (door.form, JSON), input)
        .await;
    let said = String::from_utf8_lossy(&answer.body);
    // Upstream's own answer to a field that the schema does not have, in an apply that does not validate fields.
    let is_untyped = said.contains("failed to create typed patch object");
    assert!(answer.code < 500 || is_untyped, "{said}");
    let untouched = before == revision().await;
    assert!(
        answer.code < 400 || untouched,
        "refused, and written all the same"
    );
    settled(api).await;
    // What was taken can be read.
    for form in [JSON, YAML, TABLE] {
        let listed = api.ask(Method::GET, door.list, (JSON, form), "").await;
        assert_eq!(listed.code, 200, "{}", String::from_utf8_lossy(&listed.body));
    }
}

/// The clock is the simulation's: it goes on once all tasks wait.
async fn settled(api: &Api) {
    api.runtime.sleep(Duration::from_secs(1)).await;
}
