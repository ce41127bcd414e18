//! Quotas by the hundred, with selectors as large as they may be, and changes of what they count.

use super::{Scene, delete, maps, named, own, status};
use anyhow::{Result, ensure};
use http::{Method, StatusCode};
use machinery_runtime::Runtime;
use serde_json::{Value, json};

/// Quotas of an attacker's at a time; each counts each change.
const QUOTAS: u64 = 100;
/// Names of a quota's selector.
const CLASSES: usize = 10_000;
/// Kinds that a quota counts.
const COUNTED: usize = 500;
/// Changes of counted objects in one turn.
const CHANGES: usize = 10;

fn quota(name: &str, is_huge: bool) -> Value {
    let mut hard = json!({"count/configmaps": "1000000", "count/secrets": "1000000", "pods": "1000000"});
    let mut spec = json!({});
    if is_huge {
        let classes: Vec<String> = (0..CLASSES).map(|at| format!("class-{at:050}")).collect();
        spec["scopeSelector"] = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": classes}]});
        hard = json!({"pods": "1000000"});
    }
    spec["hard"] = hard;
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
}

/// A status that counts uses of many kinds that do not exist.
fn used() -> Value {
    let used: serde_json::Map<String, Value> = (0..COUNTED)
        .map(|at| (format!("count/kind-{at}.example"), json!("1")))
        .collect();
    json!({"status": {"hard": used, "used": used}})
}

/// Quotas come and go, their status is overwritten, and objects that all of them count are created and deleted.
pub(super) async fn quotas(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let (quotas, maps) = (own(&scene, "/api/v1", "resourcequotas"), maps(&scene));
    let random = runtime.random_u64();
    let name = format!("q-{}", random % QUOTAS);
    let one = format!("{quotas}/{name}");
    delete(&mut client, &one).await?;
    let made = quota(&name, random.is_multiple_of(10)).to_string();
    let made = status(&mut client, Method::POST, &quotas, made).await?;
    for _ in 0..CHANGES {
        let name = named("counted", &runtime);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        client.send_json(Method::POST, &maps, map.to_string()).await?;
        delete(&mut client, &format!("{maps}/{name}")).await?;
    }
    client
        .send_json(Method::PATCH, &format!("{one}/status"), used().to_string())
        .await?;
    // Another client may have made it.
    ensure!(made.is_success() || made == StatusCode::CONFLICT, "{made}");
    Ok(())
}
