//! Requests with which a rejection is carried out, in whatever way the server answers them.

use super::make_pod;
use crate::actions::Actions;
use crate::decision::{Nomination, Preemption};
use crate::extender::Consultants;
use crate::metrics::Metrics;
use kube::client::Body;
use machinery_client::Client;
use machinery_runtime::Simulation;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Requests on pods, as `PATCH pod`, and the bodies of the patches.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// The requests of a pod's rejection, for which one victim is to go, where the server answers those of some pods with these codes, one
/// after the other, and all others with 200.
fn rejected(codes: &[(&'static str, &[u16])]) -> Vec<(String, Value)> {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let asked = Asked::default();
    let codes: BTreeMap<&str, Vec<u16>> = codes.iter().map(|(pod, codes)| (*pod, codes.to_vec())).collect();
    let (noted, codes) = (Arc::clone(&asked), Arc::new(Mutex::new(codes)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (noted, codes) = (Arc::clone(&noted), Arc::clone(&codes));
        async move {
            let (head, body) = request.into_parts();
            let name = head.uri.path().split('/').nth(6).unwrap_or_default().to_owned();
            let body = body.collect_bytes().await.unwrap();
            let mut codes = codes.lock().unwrap();
            let left = codes.get_mut(&*name).filter(|left| !left.is_empty());
            let code = left.map_or(200, |left| left.remove(0));
            if head.uri.path().contains("/pods/") {
                let asked = format!("{} {name}", head.method);
                let body = serde_json::from_slice(&body).unwrap_or_default();
                noted.lock().unwrap().push((asked, body));
            }
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                _ => "",
            };
            let answer = match code {
                200 => json!({"metadata": {"name": name}}),
                _ => json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
            };
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(answer).unwrap())
        }
    });
    simulation.run(async move {
        let client = Client::in_process(service, runtime.clone());
        let extenders = Consultants::without_extenders(client.clone());
        let actions = Actions::new(client, runtime, Metrics::new().unwrap(), extenders);
        let preemption = Preemption {
            node: "n".into(),
            victims: vec![make_pod("victim", json!({}))],
            dispossessed: Vec::new(),
        };
        let pod = make_pod("p", json!({}));
        let message = "0/1 nodes are available";
        actions
            .reject(&pod, message, Some(preemption), Nomination::Kept)
            .await;
    });
    std::mem::take(&mut *asked.lock().unwrap())
}

#[track_caller]
fn check(codes: &[(&'static str, &[u16])], expected: &[&str]) {
    let asked = rejected(codes);
    let requests: Vec<&str> = asked.iter().map(|(request, _)| &**request).collect();
    assert_eq!(requests, expected, "{codes:?}");
}

const ALL: &[&str] = &["PATCH p", "PATCH victim", "DELETE victim"];

#[test]
fn preemption_has_no_victims_for_pod_that_is_gone() {
    check(&[], ALL);
    check(&[("p", &[404])], &["PATCH p"]);
    // Another pod has the name.
    check(&[("p", &[409; 5])], &["PATCH p"; 5]);
    // One that was lost once is written the next time, and another write of the pod is none of a successor's.
    let again: Vec<&str> = ["PATCH p"].iter().chain(ALL).copied().collect();
    check(&[("p", &[503])], &again);
    check(&[("p", &[409])], &again);
    // As upstream: what cannot be written does not hold the preemption.
    check(&[("p", &[422])], ALL);
}

#[test]
fn preemption_deletes_victims_whose_condition_says_so() {
    check(&[("victim", &[404])], &ALL[..2]);
    check(&[("victim", &[422])], &ALL[..2]);
    check(
        &[("victim", &[503])],
        &["PATCH p", "PATCH victim", "PATCH victim", "DELETE victim"],
    );
}

#[test]
fn preemption_patches_pods_that_were_looked_at_alone() {
    let asked = rejected(&[]);
    assert_eq!(asked[0].1["metadata"]["uid"], "p");
    assert_eq!(asked[0].1["status"]["nominatedNodeName"], "n");
    assert_eq!(asked[1].1["metadata"]["uid"], "victim");
    assert_eq!(asked[2].1["preconditions"]["uid"], "victim");
}
