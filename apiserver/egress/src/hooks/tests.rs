use super::gate::Gate;
use super::status;
use super::target::{HookTarget, TargetError};
use crate::service;
use machinery_meta::reader::{ObjectReader, ReadFuture, ReadObject};
use machinery_meta::{GroupResource, ObjectHeader, ObjectKey, Revision};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects by plural, namespace and name.
#[derive(Default)]
struct Objects(BTreeMap<(String, String, String), Value>);

impl Objects {
    fn with(mut self, plural: &str, name: &str, object: Value) -> Self {
        self.0.insert((plural.into(), "ns".into(), name.into()), object);
        self
    }

    fn read(key: &(String, String, String), object: &Value) -> ReadObject {
        let labels = object["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten();
        let header = ObjectHeader {
            key: ObjectKey::new(&key.1, &key.2),
            labels: labels
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
                .collect(),
            ..ObjectHeader::default()
        };
        ReadObject {
            header: header.into(),
            revision: Revision::ZERO,
            json: object.to_string().into_bytes(),
        }
    }
}

impl ObjectReader for Objects {
    fn get<'a>(&'a self, of: &'a GroupResource, key: &'a ObjectKey) -> ReadFuture<'a, Option<ReadObject>> {
        let key = (
            of.resource.clone(),
            key.namespace.to_string(),
            key.name.to_string(),
        );
        let found = self.0.get(&key).map(|object| Self::read(&key, object));
        Box::pin(async move { Ok(found) })
    }

    fn list<'a>(&'a self, of: &'a GroupResource, namespace: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        let own = self
            .0
            .iter()
            .filter(|(key, _)| key.0 == of.resource && key.1 == namespace);
        let all = own.map(|(key, object)| Self::read(key, object)).collect();
        Box::pin(async move { Ok(all) })
    }
}

fn service(spec: Value) -> Objects {
    Objects::default().with("services", "hook", json!({ "spec": spec }))
}

fn slice(endpoints: Value, ports: Value) -> Value {
    json!({"metadata": {"labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})
}

async fn resolved(objects: &Objects, port: u16) -> Result<(String, u16), String> {
    service::resolve(objects, ("ns", "hook"), port, 7).await
}

#[tokio::test]
async fn hook_service_leads_to_a_ready_endpoint_of_its_port() {
    let clusters = json!({"type": "ClusterIP", "ports": [{"name": "web", "port": 443}]});
    let other = slice(
        json!([{"addresses": ["10.0.0.9"]}]),
        json!([{"name": "other", "port": 1}]),
    );
    let ready =
        json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.2"]}]);
    let own = slice(ready, json!([{"name": "web", "port": 8443}]));
    let objects =
        service(clusters.clone())
            .with("endpointslices", "a", other)
            .with("endpointslices", "b", own);
    assert_eq!(
        resolved(&objects, 443).await.unwrap(),
        ("10.0.0.2".to_owned(), 8443)
    );
    let refused = |error: Result<_, String>| error.unwrap_err();
    assert_eq!(
        refused(resolved(&objects, 444).await),
        r#"no service port 444 found for service "hook""#
    );
    let bare = service(clusters);
    assert_eq!(
        refused(resolved(&bare, 443).await),
        r#"no endpoints available for service "hook""#
    );
    assert_eq!(
        refused(resolved(&Objects::default(), 443).await),
        r#"service "hook" not found"#
    );
    let named = service(json!({"type": "ExternalName", "externalName": "hooks.example"}));
    assert_eq!(
        resolved(&named, 9).await.unwrap(),
        ("hooks.example".to_owned(), 9)
    );
}

#[test]
fn hook_url_is_taken_apart() {
    let of = |url: &str| HookTarget::url_of(url, b"").map(|own| own.url("timeout=1s"));
    assert_eq!(of("https://a.example").unwrap(), "https://a.example/?timeout=1s");
    assert_eq!(
        of("https://[::1]:9/x/y").unwrap(),
        "https://[::1]:9/x/y?timeout=1s"
    );
    assert!(matches!(of("https://"), Err(TargetError::Url(_))));
    let service = HookTarget::service(("ns", "hook"), 443, "path", b"").unwrap();
    assert_eq!(service.url(""), "https://hook.ns.svc:443/path");
    let broken = HookTarget::service(("ns", "hook"), 443, "", b"no certificate");
    assert!(matches!(broken, Err(TargetError::Authorities(_))));
}

#[test]
fn hook_answers_that_are_none_have_upstreams_words() {
    assert_eq!(
        status::message(404, b"x"),
        "the server could not find the requested resource"
    );
    assert_eq!(
        status::message(500, b"it broke\n"),
        r#"an error on the server ("it broke") has prevented the request from succeeding"#
    );
    assert_eq!(
        status::message(302, b""),
        "the server responded with the status code 302 but did not return more information"
    );
}

/// One namespace never has all places, and none is remembered without calls.
#[tokio::test]
async fn hook_places_are_shared_out_by_namespace() {
    let gate = Gate::new();
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(gate.enter("red", 0).await);
    }
    let full = futures_now(gate.enter("red", 0));
    assert!(full.is_none(), "a 65th call of a namespace waits");
    held.push(gate.enter("blue", 0).await);
    assert_eq!(gate.figures(), (2, 0), "who leaves waits no longer");
    held.clear();
    assert_eq!(gate.figures(), (0, 0));
    for _ in 0..4 {
        held.push(gate.enter("red", usize::MAX).await);
    }
    let full = futures_now(gate.enter("red", 0));
    assert!(
        full.is_none(),
        "four of the largest calls take all places of a namespace"
    );
    held.push(gate.enter("blue", usize::MAX).await);
}

/// Namespaces whose calls come to no end leave places to one that has none, and it is before them where all are taken.
#[tokio::test]
async fn hook_places_go_to_the_namespace_with_fewest() {
    let gate = Gate::new();
    let mut held = Vec::new();
    let mut taken = Vec::new();
    for namespace in ["a", "b", "c", "d", "e", "f", "g"] {
        let before = held.len();
        while let Some(place) = futures_now(gate.enter(namespace, 0)) {
            held.push(place);
        }
        taken.push(held.len() - before);
    }
    assert_eq!(taken, [64, 32, 16, 8, 4, 2, 1]);
    held.push(gate.enter("h", 0).await);
    let mut waiting = ["a", "b", "idle"].map(|namespace| Box::pin(gate.enter(namespace, 0)));
    for own in &mut waiting {
        assert!(futures_now(own).is_none());
    }
    drop(held.remove(0));
    let [a, b, idle] = &mut waiting;
    let first = futures_now(idle);
    assert!(first.is_some(), "who came last has no call under way");
    assert!(futures_now(&mut *a).is_none() && futures_now(&mut *b).is_none());
    drop((held, first));
    assert!(futures_now(a).is_some() && futures_now(b).is_some());
    assert_eq!(gate.figures(), (0, 0));
}

/// A webhook that sends large answers slowly holds its own room, and not that of others.
#[tokio::test]
async fn hook_large_answers_are_shared_out_by_webhook() {
    let (slow, other) = (Gate::new(), Gate::new());
    let all = tokio::sync::Semaphore::new(16);
    let mut held = Vec::new();
    while let Some(room) = futures_now(slow.large(&all)) {
        held.push(room);
    }
    assert_eq!((held.len(), all.available_permits()), (4, 12));
    let room = futures_now(other.large(&all));
    assert!(room.is_some(), "another webhook's answer does not wait");
    held.pop();
    assert!(futures_now(slow.large(&all)).is_some());
}

/// The output of a future that need not wait.
fn futures_now<F: Future>(future: F) -> Option<F::Output> {
    // Many in one turn are no reason to wait.
    let mut future = std::pin::pin!(tokio::task::unconstrained(future));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
