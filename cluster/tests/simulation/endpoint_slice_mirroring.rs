//! Users write Endpoints of Services without a selector, change and delete them, give the Service a selector and take it
//! away: in the end the mirrored slices hold the addresses of the Endpoints, and are none where they should not be.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";

struct Mirroring;

fn subsets(world: &World) -> Value {
    let of = |base: u64| {
        let addresses = (0..1 + world.dice(3)).map(|own| json!({"ip": format!("10.0.{base}.{own}")}));
        let port = 80 + world.dice(2);
        json!({"ports": [{"port": port, "protocol": "TCP"}], "addresses": addresses.collect::<Vec<_>>()})
    };
    json!((0..world.dice(3)).map(of).collect::<Vec<_>>())
}

/// Pairs of address and port.
type Served = BTreeSet<(String, i64)>;

fn pairs<'a>(addresses: impl Iterator<Item = &'a str>, ports: &Value) -> Served {
    let ports: Vec<i64> = ports
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|own| own["port"].as_i64())
        .collect();
    addresses
        .flat_map(|own| ports.iter().map(|port| (own.to_owned(), *port)))
        .collect()
}

impl Scenario for Mirroring {
    const CONTROLLERS: &'static [&'static str] = &["endpointslice-mirroring-controller"];
    const STEPS: u32 = 40;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = if world.once_in(2) { "a" } else { "b" };
        let key = ObjectKey::new("default", name);
        if model.get("Service", "default", name).is_none() {
            let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
            world.create::<Service>(service).await.unwrap();
            return;
        }
        if model.get("Endpoints", "default", name).is_none() {
            let endpoints =
                json!({"metadata": {"name": name, "labels": {"own": "yes"}}, "subsets": subsets(world)});
            world.create::<Endpoints>(endpoints).await.unwrap();
            return;
        }
        match world.dice(8) {
            0 => world.delete::<Service>(&key).await,
            1 => world.delete::<Endpoints>(&key).await,
            2 => {
                world
                    .patch::<Service>(&key, json!({"spec": {"selector": {"app": name}}}))
                    .await
            }
            3 => {
                world
                    .patch::<Service>(&key, json!({"spec": {"selector": null}}))
                    .await
            }
            4 => {
                let skip = if world.once_in(2) {
                    json!("true")
                } else {
                    Value::Null
                };
                world
                    .patch::<Endpoints>(&key, json!({"metadata": {"labels": {SKIP: skip}}}))
                    .await;
            }
            _ => {
                world
                    .patch::<Endpoints>(&key, json!({"subsets": subsets(world)}))
                    .await
            }
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(slice) = change.made("EndpointSlice") else {
            return Ok(());
        };
        match slice.label(MANAGED_BY) {
            Some(CONTROLLER) => Ok(()),
            other => Err(format!("managed by {other:?}")),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for name in ["a", "b"] {
            let service = model.get("Service", "default", name);
            let endpoints = model.get("Endpoints", "default", name);
            let by_user = service.is_some_and(|own| own.at("/spec/selector").is_none_or(Value::is_null));
            let endpoints = endpoints.filter(|own| by_user && own.label(SKIP) != Some("true"));
            let mut wanted = Served::new();
            for subset in endpoints.map(|own| own.list("/subsets")).unwrap_or_default() {
                let addresses = subset["addresses"].as_array().into_iter().flatten();
                let addresses = addresses.filter_map(|own| own["ip"].as_str());
                wanted.extend(pairs(addresses, &subset["ports"]));
            }
            let mut have = Served::new();
            let slices = model.all("EndpointSlice");
            for slice in slices.filter(|own| own.label("kubernetes.io/service-name") == Some(name)) {
                let own = slice.list("/endpoints").iter();
                let addresses = own.filter_map(|own| own["addresses"][0].as_str());
                let ports = slice.at("/ports").cloned().unwrap_or_default();
                let served = pairs(addresses, &ports);
                if served.is_empty() || !have.is_disjoint(&served) {
                    return Err(format!("{} is empty or served twice", slice.key));
                }
                have.extend(served);
            }
            if have != wanted {
                return Err(format!("{name}: {have:?} for {wanted:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn endpoint_slice_mirroring_scenario() {
    run_seeds(|| Mirroring);
}
