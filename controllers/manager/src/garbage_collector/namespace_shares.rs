//! A namespace with thousands of invented owners, and another beside it, on an API whose requests are counted.

use super::api::{Answer, Answers, Pieces, added, client, discovered, failure, listed, one, streamed};
use super::{WORKERS, assemble};
use futures::StreamExt;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use machinery_client::{ApiResource, Informers};
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EVIL: usize = 40;
const OWNERS: usize = 200;
/// Lookups of one key before another has its turn.
const TURN: usize = 32;

/// ConfigMaps, most of which another claims to be owned by, and no other ones.
#[derive(Debug, Default)]
struct Api {
    objects: Mutex<BTreeMap<String, Value>>,
    lookups: Mutex<usize>,
    /// Deleted objects, and how many lookups there were before.
    deleted: Mutex<Vec<(String, usize)>>,
    /// Lookups before the object came that was not there at first.
    before_late: Mutex<usize>,
}

/// While all workers are with the other namespace.
const LATE: Duration = Duration::from_millis(300);

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

impl Api {
    fn add(&self, namespace: &str, name: &str, owners: usize) -> Value {
        let owner = |number: usize| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("gone-{name}-{number}"),
                "uid": format!("gone-{namespace}-{name}-{number}")})
        };
        let owners: Vec<Value> = (0..owners).map(owner).collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace,
            "uid": format!("{namespace}-{name}"), "resourceVersion": "1", "ownerReferences": owners}});
        let path = path(namespace, name);
        self.objects.lock().unwrap().insert(path, object.clone());
        object
    }

    fn lookups(&self) -> usize {
        *self.lookups.lock().unwrap()
    }

    fn watch(self: &Arc<Self>, runtime: &Runtime) -> Pieces {
        let all: Vec<Value> = self
            .objects
            .lock()
            .unwrap()
            .values()
            .cloned()
            .map(added)
            .collect();
        let (api, runtime) = (self.clone(), runtime.clone());
        let late = async move {
            runtime.sleep(LATE).await;
            *api.before_late.lock().unwrap() = api.lookups();
            added(api.add("good", "late", 1))
        };
        let rest = futures::stream::once(late).chain(futures::stream::pending());
        futures::stream::iter(all.into_iter().chain([listed()]))
            .chain(rest)
            .boxed()
    }
}

impl Answers for Api {
    fn answer(self: &Arc<Self>, request: &Request<()>, _: &Value, runtime: &Runtime) -> Answer {
        let path = request.uri().path().to_owned();
        if path == "/api/v1/configmaps" {
            return streamed(StatusCode::OK, self.watch(runtime));
        }
        let mut objects = self.objects.lock().unwrap();
        match (request.method(), objects.get(&path)) {
            (&Method::GET, Some(object)) => one(StatusCode::OK, object.clone()),
            (&Method::DELETE, Some(_)) => {
                objects.remove(&path);
                self.deleted.lock().unwrap().push((path, self.lookups()));
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
                one(StatusCode::OK, status)
            }
            _ => {
                *self.lookups.lock().unwrap() += 1;
                failure(404, "NotFound")
            }
        }
    }
}

#[test]
fn invented_owners_of_one_namespace_do_not_hold_another() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Arc::new(Api::default());
        for number in 0..EVIL {
            api.add("evil", &number.to_string(), OWNERS);
        }
        api.add("good", "early", 1);
        let client = client(&api, &runtime);
        let informers = Informers::new(client.clone(), runtime.clone());
        let (controller, collector) = assemble(&informers, client, &runtime);
        let resources = [ApiResource::of::<ConfigMap>()];
        collector.monitors.serve(&discovered(&resources));
        let running = runtime.spawn("collector", controller.run(collector));
        while api.deleted.lock().unwrap().len() < EVIL + 2 {
            runtime.sleep(Duration::from_millis(100)).await;
        }
        running.abort();
        let before = |name: &str| {
            let deleted = api.deleted.lock().unwrap();
            deleted.iter().find(|(path, _)| path.ends_with(name)).unwrap().1
        };
        // Its turn is the second, though it came last.
        assert!(
            before("early") <= 4 * WORKERS,
            "{} lookups before",
            before("early")
        );
        // Every worker was with the others, and none for longer than a turn; the last lookup is its own.
        let late = before("late") - *api.before_late.lock().unwrap();
        assert!(late <= WORKERS * TURN + 1, "{late} lookups before");
        // Turns lose nothing of what was found.
        assert_eq!(api.lookups(), EVIL * OWNERS + 2);
    });
}
