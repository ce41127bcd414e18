//! Claims of devices: selectors that take as long as they may for each device, and pods of many claims.

use super::{Scene, delete, named, own};
use crate::hostile::devices::{CLASS, NODE};
use anyhow::Result;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::time::Duration;

const GROUP: &str = "/apis/resource.k8s.io/v1";
/// Requests of a claim, and selectors of each, of which there may be no more.
const REQUESTS: usize = 8;
const SELECTORS: usize = 32;
/// Items of each of the two loops of a selector: what it is estimated to cost stays below what is accepted.
const ITEMS: usize = 200;
/// Claims of one pod.
const CLAIMS: usize = 200;
/// Time for scheduler and controllers to get at a pod.
const PAUSE: Duration = Duration::from_secs(3);

/// A pod for the devices' node, with these entries of claims.
fn pod(name: &str, claims: &[Value]) -> Value {
    let named: Vec<Value> = claims.iter().map(|own| json!({"name": own["name"]})).collect();
    let container = json!({"name": "c", "image": "knarr.local/hello:1", "resources": {"claims": named}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeSelector": {"kubernetes.io/hostname": NODE}, "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0, "containers": [container], "resourceClaims": claims}})
}

/// A selector that every device meets, or none, as its evaluation shows in the end.
fn selector(number: usize, is_met: bool) -> Value {
    let items: Vec<String> = (0..ITEMS).map(|at| at.to_string()).collect();
    let items = items.join(",");
    let not = match is_met {
        true => "",
        false => "!",
    };
    let expression = format!("{not}[{items}].all(a, [{items}].all(b, a + b + {number} >= 0))");
    json!({"cel": {"expression": expression}})
}

fn claim(name: &str) -> Value {
    let requests: Vec<Value> = (0..REQUESTS)
        .map(|at| {
            let selectors: Vec<Value> = (1..=SELECTORS)
                .map(|number| selector(number, number < SELECTORS))
                .collect();
            let exactly = json!({"deviceClassName": CLASS, "selectors": selectors});
            json!({"name": format!("r{at}"), "exactly": exactly})
        })
        .collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}}})
}

/// A pod that asks for devices by a claim whose selectors are evaluated for each of them.
pub(super) async fn dear_selectors(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let (claims, pods) = (
        own(&scene, GROUP, "resourceclaims"),
        own(&scene, "/api/v1", "pods"),
    );
    let name = named("dear", &runtime);
    client
        .send_json(Method::POST, &claims, claim(&name).to_string())
        .await?;
    let own = pod(&name, &[json!({"name": "c0", "resourceClaimName": name})]);
    let made = client.send_json(Method::POST, &pods, own.to_string()).await;
    runtime.sleep(PAUSE).await;
    delete(&mut client, &format!("{pods}/{name}")).await?;
    delete(&mut client, &format!("{claims}/{name}")).await?;
    made.map(drop)
}

/// A pod for which a controller makes claims by the hundred.
pub(super) async fn many_claims(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let templates = own(&scene, GROUP, "resourceclaimtemplates");
    let pods = own(&scene, "/api/v1", "pods");
    let name = named("many", &runtime);
    let request = json!({"name": "r", "exactly": {"deviceClassName": CLASS}});
    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}}});
    client
        .send_json(Method::POST, &templates, template.to_string())
        .await?;
    let entries: Vec<Value> = (0..CLAIMS)
        .map(|at| json!({"name": format!("c{at}"), "resourceClaimTemplateName": name}))
        .collect();
    let made = client
        .send_json(Method::POST, &pods, pod(&name, &entries).to_string())
        .await;
    runtime.sleep(PAUSE).await;
    delete(&mut client, &format!("{pods}/{name}")).await?;
    delete(&mut client, &format!("{templates}/{name}")).await?;
    made.map(drop)
}
