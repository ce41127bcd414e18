//! Pods come, become ready, unready and go, while the service's selector changes: Endpoints and EndpointSlices end up
//! with the same addresses, the right ones, and those of pods that stay ready are never missing in between.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Addresses, and whether each is ready.
type Addresses = BTreeMap<String, bool>;

#[derive(Default)]
struct Served {
    next: u64,
    /// By kind, whether every steady pod has been there.
    complete: BTreeSet<String>,
}

const STEADY: [&str; 2] = ["10.0.1.1", "10.0.1.2"];

impl Scenario for Served {
    const CONTROLLERS: &'static [&'static str] = &["endpoints-controller", "endpointslice-controller"];
    const STEPS: u32 = 30;

    async fn begin(&mut self, world: &World) {
        // Slices have pods of known nodes alone.
        let node = json!({"metadata": {"name": "n"}});
        world.create::<Node>(node).await.unwrap();
        for address in STEADY {
            let name = format!("steady-{}", address.replace('.', "-"));
            make_pod(world, &name, json!({"app": "a", "steady": "yes"})).await;
            say(world, &ObjectKey::new("default", name), address, true).await;
        }
        for (name, selector) in [("steady", json!({"app": "a"})), ("other", json!({"app": "b"}))] {
            make_service(world, name, &selector).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let others = model.all("Pod").filter(|pod| pod.label("steady").is_none());
        let pod = world.pick(others.cloned().collect());
        let label = ["a", "b", "c"][usize::try_from(world.dice(3)).unwrap()];
        match (world.dice(8), pod) {
            (0, _) => {
                let key = ObjectKey::new("default", "other");
                world
                    .patch::<Service>(&key, json!({"spec": {"selector": {"app": label}}}))
                    .await;
            }
            (1, _) => match model.get("Service", "default", "other") {
                Some(own) => world.delete::<Service>(&own.key).await,
                None => make_service(world, "other", &json!({"app": label})).await,
            },
            (2, Some(pod)) => world.delete::<Pod>(&pod.key).await,
            (3, Some(pod)) => world.pod_has_ended(&pod).await,
            (4, Some(pod)) => {
                world
                    .patch::<Pod>(&pod.key, json!({"metadata": {"labels": {"app": label}}}))
                    .await;
            }
            (5 | 6, Some(pod)) => {
                let ready = world.once_in(2);
                say(world, &pod.key, &address_of(&pod), ready).await;
            }
            _ => {
                self.next += 1;
                make_pod(world, &format!("p{}", self.next), json!({"app": label})).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        for (kind, have) in [
            ("Endpoints", in_endpoints(model, "steady")),
            ("EndpointSlice", in_slices(model, "steady")),
        ] {
            if !change.is_of(kind) {
                continue;
            }
            let all = STEADY.iter().all(|address| have.get(*address) == Some(&true));
            if all {
                self.complete.insert(kind.to_owned());
            } else if self.complete.contains(kind) {
                return Err(format!("{kind} has only {have:?}"));
            }
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for service in ["steady", "other"] {
            let expected = expected(model, service);
            let (endpoints, slices) = (in_endpoints(model, service), in_slices(model, service));
            let ready = |all: &Addresses| -> BTreeSet<String> {
                all.iter()
                    .filter(|(_, ready)| **ready)
                    .map(|(address, _)| address.clone())
                    .collect()
            };
            if endpoints != expected || ready(&slices) != ready(&expected) {
                return Err(format!(
                    "{service}: {endpoints:?} and {slices:?}, not {expected:?}"
                ));
            }
        }
        Ok(())
    }
}

fn address_of(pod: &ObjectVersion) -> String {
    let number: u64 = pod.name().trim_start_matches('p').parse().unwrap();
    format!("10.0.2.{number}")
}

async fn make_pod(world: &World, name: &str, labels: Value) {
    let mut pod = template(&labels);
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["nodeName"] = json!("n");
    world.create::<Pod>(pod).await.unwrap();
}

async fn make_service(world: &World, name: &str, selector: &Value) {
    let ports = json!([{"port": 80}]);
    let service = json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": ports}});
    world.create::<Service>(service).await.unwrap();
}

async fn say(world: &World, pod: &ObjectKey, address: &str, ready: bool) {
    let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [world.condition("Ready", ready)]});
    world.patch_status::<Pod>(pod, status).await;
}

fn expected(model: &ReferenceModel, service: &str) -> Addresses {
    let selector = model
        .get("Service", "default", service)
        .map(|own| own.text("/spec/selector/app").to_owned());
    let behind = model.all("Pod").filter(|pod| {
        pod.is_active_pod()
            && !pod.text("/status/podIP").is_empty()
            && pod.label("app") == selector.as_deref()
    });
    behind
        .map(|pod| (pod.text("/status/podIP").to_owned(), pod.is_ready_pod()))
        .collect()
}

fn in_endpoints(model: &ReferenceModel, service: &str) -> Addresses {
    let mut out = Addresses::new();
    let own = model.get("Endpoints", "default", service);
    for subset in own.map_or(&[][..], |own| own.list("/subsets")) {
        for (list, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let all = subset[list].as_array().into_iter().flatten();
            out.extend(all.map(|own| (own["ip"].as_str().unwrap().to_owned(), ready)));
        }
    }
    out
}

fn in_slices(model: &ReferenceModel, service: &str) -> Addresses {
    let mut out = Addresses::new();
    let of = |own: &&std::sync::Arc<ObjectVersion>| own.label("kubernetes.io/service-name") == Some(service);
    for endpoint in model
        .all("EndpointSlice")
        .filter(of)
        .flat_map(|own| own.list("/endpoints"))
    {
        let ready = endpoint["conditions"]["ready"] == true;
        let address = endpoint["addresses"][0].as_str().unwrap().to_owned();
        *out.entry(address).or_default() |= ready;
    }
    out
}

#[test]
fn addresses_are_right_and_steady() {
    run_seeds(Served::default);
}
