//! Bindings without the address of a pod, as old schedulers make them: `POST bindings`, which names its pod in the body.

use serde_json::{Value, json};

use super::run::Ask;
use super::{OTHER, OWN};

const DRY: &str = "dryRun=All";

/// Bodies that agree with the address, that name another namespace or pod, and such as no user may bind.
pub(super) fn requests() -> Vec<Ask> {
    let mut asks = Vec::new();
    for side in [OWN, OTHER] {
        let collection = format!("/api/v1/namespaces/{side}/bindings");
        let address = format!("{collection}?{DRY}");
        let post = |word: &str, body: &Value| {
            Ask::with_body("POST", &address, "application/json", body).called(word)
        };
        let node = json!({"kind": "Node", "name": "one-blue"});
        asks.extend([
            post("pod", &binding(None, "a", &node)),
            post("names-blue", &binding(Some(OWN), "a", &node)),
            post("names-red", &binding(Some(OTHER), "a", &node)),
            post("unknown-pod", &binding(None, "nothing", &node)),
            post("bound-pod", &binding(None, "bound", &node)),
            post("no-pod", &binding(None, "", &node)),
            post("no-target", &binding(None, "a", &json!({}))),
            post(
                "other-target",
                &binding(None, "a", &json!({"kind": "Pod", "name": "x"})),
            ),
            Ask::plain("GET", &collection),
            Ask::plain("GET", &format!("{collection}/a")),
            Ask::plain("DELETE", &format!("{collection}/a?{DRY}")),
        ]);
    }
    let everywhere = format!("/api/v1/bindings?{DRY}");
    let body = binding(Some(OWN), "a", &json!({"kind": "Node", "name": "one-blue"}));
    asks.push(Ask::with_body("POST", &everywhere, "application/json", &body));
    asks
}

fn binding(namespace: Option<&str>, pod: &str, target: &Value) -> Value {
    let mut metadata = json!({"name": pod});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
}
