//! Stores of the collector: those that are never filled, and those whose changes ask discovery again.

use super::api::{Answer, Answers, added, client, discovered, failure, listed, one, streamed};
use super::reconcile::INITIAL_SYNC_TIMEOUT;
use super::{ROW, assemble};
use crate::config::Config;
use crate::context::ControllerContext;
use futures::StreamExt;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{Pod, Secret};
use machinery_client::{ApiResource, Informers};
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A pod whose owner is gone, Secrets that are never listed, and definitions one of which comes late.
#[derive(Debug, Default)]
struct Api {
    deleted: Mutex<Option<Duration>>,
    discoveries: Mutex<Vec<Duration>>,
}

const DEFINITION_AT: Duration = Duration::from_secs(100);

fn pod() -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "gone", "uid": "gone"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "n", "uid": "pod",
        "resourceVersion": "1", "ownerReferences": [owner]}})
}

fn groups(items: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
}

impl Answers for Api {
    fn answer(self: &Arc<Self>, request: &Request<()>, _: &Value, runtime: &Runtime) -> Answer {
        let all = |objects: Vec<Value>| {
            let list = objects.into_iter().map(added).chain([listed()]);
            futures::stream::iter(list)
                .chain(futures::stream::pending())
                .boxed()
        };
        match (request.method(), request.uri().path()) {
            (_, "/api/v1/secrets") => streamed(StatusCode::OK, futures::stream::pending().boxed()),
            (_, "/api/v1/pods") => streamed(StatusCode::OK, all(vec![pod()])),
            (_, path) if path.ends_with("/apiservices") => streamed(StatusCode::OK, all(Vec::new())),
            (_, path) if path.ends_with("/customresourcedefinitions") => {
                let clock = runtime.clone();
                let late = futures::stream::once(async move {
                    clock.sleep(DEFINITION_AT.saturating_sub(clock.monotonic())).await;
                    added(json!({"metadata": {"name": "a.b", "uid": "a.b", "resourceVersion": "2"}}))
                });
                let list = futures::stream::iter([listed()]).chain(late);
                streamed(StatusCode::OK, list.chain(futures::stream::pending()).boxed())
            }
            (_, "/api") => {
                let verbs = ["list", "watch", "delete"];
                let pods = json!({"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": verbs});
                let version = json!({"version": "v1", "resources": [pods]});
                one(
                    StatusCode::OK,
                    groups(&json!([{"metadata": {}, "versions": [version]}])),
                )
            }
            (_, "/apis") => {
                self.discoveries.lock().unwrap().push(runtime.monotonic());
                one(StatusCode::OK, groups(&json!([])))
            }
            (&Method::GET, path) if path.ends_with("/pods/pod") => one(StatusCode::OK, pod()),
            (&Method::DELETE, _) => {
                *self.deleted.lock().unwrap() = Some(runtime.monotonic());
                one(StatusCode::OK, pod())
            }
            _ => failure(404, "NotFound"),
        }
    }
}

#[test]
fn stores_that_are_never_filled_end_no_collection() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Arc::new(Api::default());
        let client = client(&api, &runtime);
        let informers = Informers::new(client.clone(), runtime.clone());
        let (controller, collector) = assemble(&informers, client, &runtime);
        let resources = [ApiResource::of::<Pod>(), ApiResource::of::<Secret>()];
        collector.monitors.serve(&discovered(&resources));
        let begun = runtime.monotonic();
        let running = runtime.spawn("collector", controller.run(collector));
        runtime.sleep(2 * INITIAL_SYNC_TIMEOUT).await;
        running.abort();
        let deleted = api.deleted.lock().unwrap().expect("a deletion") - begun;
        assert!(
            deleted >= INITIAL_SYNC_TIMEOUT,
            "{deleted:?}: the owner may be listed yet"
        );
        assert!(
            deleted < INITIAL_SYNC_TIMEOUT + Duration::from_secs(1),
            "{deleted:?}"
        );
    });
}

#[test]
fn definitions_that_change_ask_discovery_again() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Arc::new(Api::default());
        let client = client(&api, &runtime);
        let informers = Informers::new(client.clone(), runtime.clone());
        let own = client.clone();
        let clients = Arc::new(move |_: &str| own.clone());
        let context = ControllerContext::new(runtime.clone(), informers, clients, Config::default());
        let running = runtime.spawn("collector", (ROW.start)(&context));
        runtime.sleep(2 * DEFINITION_AT).await;
        running.abort();
        let discoveries = api.discoveries.lock().unwrap().clone();
        let after = discoveries.iter().filter(|at| **at >= DEFINITION_AT).count();
        assert_eq!((discoveries.len() - after, after), (2, 2), "{discoveries:?}");
    });
}
