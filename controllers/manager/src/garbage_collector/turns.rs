//! A namespace with thousands of invented owners, and another beside it, on an API whose requests are counted.

use super::reconcile::LOOKUPS_PER_TURN;
use super::{WORKERS, assemble};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use machinery_client::discovery::{Discovered, DiscoveredResource};
use machinery_client::{ApiResource, Client, Informers};
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EVIL: usize = 40;
const OWNERS: usize = 200;

/// ConfigMaps, most of which another claims to be owned by, and no other ones.
#[derive(Debug, Default)]
struct Api {
    objects: Mutex<BTreeMap<String, Value>>,
    lookups: Mutex<usize>,
    /// Deleted objects, and how many lookups there were before.
    deleted: Mutex<Vec<(String, usize)>>,
}

type Answer =
    Response<StreamBody<BoxStream<'static, Result<http_body::Frame<bytes::Bytes>, std::io::Error>>>>;

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

fn answer(status: StatusCode, pieces: Vec<Value>, open: bool) -> Answer {
    let lines = pieces
        .into_iter()
        .map(|piece| Ok(http_body::Frame::data(format!("{piece}\n").into())));
    let lines = futures::stream::iter(lines);
    let mut answer = Response::new(StreamBody::new(match open {
        true => lines.chain(futures::stream::pending()).boxed(),
        false => lines.boxed(),
    }));
    *answer.status_mut() = status;
    answer
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason})
}

impl Api {
    fn add(&self, namespace: &str, name: &str, owners: usize) {
        let owner = |number: usize| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("gone-{name}-{number}"),
                "uid": format!("gone-{namespace}-{name}-{number}")})
        };
        let owners: Vec<Value> = (0..owners).map(owner).collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace,
            "uid": format!("{namespace}-{name}"), "resourceVersion": "1", "ownerReferences": owners}});
        self.objects.lock().unwrap().insert(path(namespace, name), object);
    }

    fn handle(&self, request: &Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        let mut objects = self.objects.lock().unwrap();
        if path == "/api/v1/configmaps" {
            let all = objects
                .values()
                .map(|object| json!({"type": "ADDED", "object": object}));
            let end = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata":
                {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}});
            return answer(StatusCode::OK, all.chain([end]).collect(), true);
        }
        let lookups = *self.lookups.lock().unwrap();
        match (request.method(), objects.get(&path)) {
            (&Method::GET, Some(object)) => answer(StatusCode::OK, vec![object.clone()], false),
            (&Method::DELETE, Some(_)) => {
                objects.remove(&path);
                self.deleted.lock().unwrap().push((path, lookups));
                answer(
                    StatusCode::OK,
                    vec![json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})],
                    false,
                )
            }
            _ => {
                *self.lookups.lock().unwrap() += 1;
                answer(StatusCode::NOT_FOUND, vec![status(404, "NotFound")], false)
            }
        }
    }
}

fn client(api: &Arc<Api>, runtime: &Runtime) -> Client {
    let (api, clock) = (api.clone(), runtime.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (api, clock) = (api.clone(), clock.clone());
        async move {
            clock.sleep(Duration::from_millis(1)).await;
            Ok::<_, std::convert::Infallible>(api.handle(&request))
        }
    });
    Client::in_process(service, runtime.clone())
}

#[test]
fn invented_owners_of_one_namespace_do_not_hold_another() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Arc::new(Api::default());
        (0..EVIL).for_each(|number| api.add("evil", &number.to_string(), OWNERS));
        api.add("good", "dependent", 1);
        let client = client(&api, &runtime);
        let informers = Informers::new(client.clone(), runtime.clone());
        let (controller, collector) = assemble(&informers, client, &runtime);
        let verbs = ["list", "watch", "delete"].map(str::to_owned);
        collector.monitors.serve(&Discovered {
            resources: vec![DiscoveredResource {
                resource: ApiResource::of::<ConfigMap>(),
                verbs: verbs.into(),
                subresources: Vec::new(),
                preferred: true,
            }],
            stale: Vec::new(),
        });
        let running = runtime.spawn("collector", controller.run(collector));
        while api.deleted.lock().unwrap().len() <= EVIL {
            runtime.sleep(Duration::from_millis(100)).await;
        }
        running.abort();
        let deleted = api.deleted.lock().unwrap();
        let (_, before) = deleted.iter().find(|(name, _)| name.contains("good")).unwrap();
        // Each worker is with the other namespace at most once before.
        assert!(
            *before <= 2 * WORKERS * LOOKUPS_PER_TURN,
            "{before} lookups before"
        );
        // Turns lose nothing of what was found.
        assert_eq!(*api.lookups.lock().unwrap(), EVIL * OWNERS + 1);
    });
}
