//! Evictions: of pods that are not there, of others than the one that is, against budgets, and one after the other.

use super::{Scene, delete, named, own, status};
use anyhow::{Result, ensure};
use http::{Method, StatusCode};
use machinery_runtime::Runtime;
use serde_json::{Value, json};

/// Budgets of an attacker's at a time.
const BUDGETS: u64 = 50;
/// Values of a budget's selector.
const VALUES: usize = 1_000;
/// Evictions of one turn that delete nothing.
const OF_TURN: usize = 20;

fn eviction(pod: &str, options: &Value) -> String {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, "deleteOptions": options}).to_string()
}

/// A budget that allows nothing, of pods whose label is one of many.
fn budget(name: &str) -> Value {
    let values: Vec<String> = (0..VALUES).map(|at| format!("v{at}")).collect();
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]});
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"maxUnavailable": 0, "selector": selector}})
}

/// See the module.
pub(super) async fn evictions(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let pods = own(&scene, "/api/v1", "pods");
    let budgets = own(&scene, "/apis/policy/v1", "poddisruptionbudgets");
    let name = format!("b-{}", runtime.random_u64() % BUDGETS);
    delete(&mut client, &format!("{budgets}/{name}")).await?;
    status(&mut client, Method::POST, &budgets, budget(&name).to_string()).await?;
    let pod = named("evicted", &runtime);
    let made = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": {"app": "v7"}}, "spec": {
        "nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "knarr.local/hello:1"}]}});
    client.send_json(Method::POST, &pods, made.to_string()).await?;
    let eviction_of = |pod: &str| format!("{pods}/{pod}/eviction");
    let answers = [
        ("absent", json!({}), StatusCode::NOT_FOUND),
        (&pod, json!({"dryRun": ["All"]}), StatusCode::CREATED),
    ];
    for (name, options, expected) in answers.iter().cycle().take(OF_TURN) {
        let body = eviction(name, options);
        let code = status(&mut client, Method::POST, &eviction_of(name), body).await?;
        let is_expected = code == *expected || code == StatusCode::TOO_MANY_REQUESTS;
        ensure!(is_expected, "{options}: {code}");
    }
    // It is tried for ten seconds, in vain.
    let body = eviction(&pod, &json!({"preconditions": {"uid": "another"}}));
    let code = status(&mut client, Method::POST, &eviction_of(&pod), body).await?;
    let is_expected = matches!(code, StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS);
    ensure!(is_expected, "the wrong pod: {code}");
    // One that runs is held by its budgets.
    if let Some(held) = &scene.pod {
        let body = eviction("held", &json!({}));
        let code = status(&mut client, Method::POST, &format!("{held}/eviction"), body).await?;
        ensure!(!code.is_success(), "{code}");
    }
    let code = status(
        &mut client,
        Method::POST,
        &eviction_of(&pod),
        eviction(&pod, &json!({})),
    )
    .await?;
    delete(&mut client, &format!("{pods}/{pod}")).await?;
    ensure!(code.is_success(), "{code}");
    Ok(())
}
