//! Services and ranges of addresses come and go, and a client deletes and makes addresses: no two services ever
//! share a node port, no range goes before its addresses, and in the end each service has its address, no address is
//! left over, and every range is ready.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Ranges that users make, some of them inside of others: name, first two parts, bits.
const RANGES: [(&str, &str); 3] = [
    ("wide", "10.97.0.0/16"),
    ("narrow", "10.97.0.0/24"),
    ("far", "10.98.0.0/24"),
];
const SERVICES: u64 = 6;
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

struct Addresses;

impl Scenario for Addresses {
    const CONTROLLERS: &'static [&'static str] = &["service-cidr-controller"];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 8_000;

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let (name, range) = RANGES[usize::try_from(world.dice(3)).unwrap()];
        match world.dice(7) {
            0 => match model.get("ServiceCIDR", "", name) {
                Some(own) => world.delete::<ServiceCIDR>(&own.key).await,
                None => {
                    let own = json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}});
                    world.create::<ServiceCIDR>(own).await.unwrap();
                }
            },
            1 => delete_an_address(world, model).await,
            2 => leave_an_address(world).await,
            _ => {
                let name = format!("s{}", world.dice(SERVICES));
                match model.get("Service", "default", &name) {
                    Some(own) => world.delete::<Service>(&own.key).await,
                    // The range it requests may not be there, or full.
                    None => drop(world.create::<Service>(service(world, &name)).await),
                }
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let mut ports = BTreeMap::new();
        for service in model.all("Service") {
            for port in service
                .list("/spec/ports")
                .iter()
                .filter_map(|port| port.get("nodePort"))
            {
                if let Some(other) = ports.insert(port.to_string(), service.name()) {
                    return Err(format!("{other} and {} share {port}", service.name()));
                }
            }
        }
        let Some(gone) = change.gone("ServiceCIDR") else {
            return Ok(());
        };
        let was_held = gone.finalizers.iter().any(|own| &**own == FINALIZER);
        let lost = model
            .all("IPAddress")
            .find(|own| is_in(gone, own) && !has_range(model, own));
        match lost.filter(|_| was_held) {
            Some(address) => Err(format!("it went before {}", address.name())),
            None => Ok(()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for service in model.all("Service") {
            let address = service.text("/spec/clusterIP");
            let held = model.get("IPAddress", "", address);
            if held.map(|held| held.text("/spec/parentRef/name")) != Some(service.name()) {
                return Err(format!(
                    "{} has {address}, whose object is {held:?}",
                    service.name()
                ));
            }
        }
        for address in model.all("IPAddress") {
            let (namespace, name) = (
                address.text("/spec/parentRef/namespace"),
                address.text("/spec/parentRef/name"),
            );
            let service = model.get("Service", namespace, name);
            if service.map(|own| own.text("/spec/clusterIP")) != Some(address.name()) {
                return Err(format!("{} is left over", address.name()));
            }
        }
        model
            .all("ServiceCIDR")
            .try_for_each(|cidr| is_right(model, cidr))
    }
}

/// A range that stays is ready; one that goes is needed, and says so.
fn is_right(model: &ReferenceModel, cidr: &ObjectVersion) -> Result<(), String> {
    let needed = || {
        model
            .all("IPAddress")
            .any(|own| is_in(cidr, own) && !has_range(model, own))
    };
    match (cidr.is_deleting(), cidr.condition("Ready")) {
        (false, "True") => Ok(()),
        (true, "False") if needed() => Ok(()),
        (going, ready) => Err(format!("{} (going: {going}) says {ready:?}", cidr.name())),
    }
}

/// The address is in a range that stays.
fn has_range(model: &ReferenceModel, address: &ObjectVersion) -> bool {
    model
        .all("ServiceCIDR")
        .any(|cidr| !cidr.is_deleting() && is_in(cidr, address))
}

fn is_in(cidr: &ObjectVersion, address: &ObjectVersion) -> bool {
    let bits = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
    let range = cidr.list("/spec/cidrs")[0].as_str().unwrap();
    let (base, length) = range.split_once('/').unwrap();
    let shift = 32 - length.parse::<u32>().unwrap();
    bits(address.name()) >> shift == bits(base) >> shift
}

/// Takes one of the default range, which always stays: the last trace of an address, once deleted, frees its range.
async fn delete_an_address(world: &World, model: &ReferenceModel) {
    let of_default = |own: &&Arc<ObjectVersion>| own.name().starts_with("10.96.");
    let addresses = model.all("IPAddress").filter(of_default).cloned();
    if let Some(own) = world.pick(addresses.collect()) {
        world.delete::<IPAddress>(&own.key).await;
    }
}

async fn leave_an_address(world: &World) {
    let name = format!("10.96.9.{}", 1 + world.dice(9));
    let labels = json!({"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        "ipaddress.kubernetes.io/ip-family": "IPv4"});
    let parent = json!({"resource": "services", "namespace": "default", "name": "nobody"});
    let own = json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}});
    drop(world.create::<IPAddress>(own).await);
}

fn service(world: &World, name: &str) -> Value {
    let kind = if world.once_in(2) { "NodePort" } else { "ClusterIP" };
    let mut own = json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    let asked = match world.dice(4) {
        0 => "10.97.0",
        1 => "10.97.1",
        2 => "10.98.0",
        _ => return own,
    };
    own["spec"]["clusterIP"] = json!(format!("{asked}.{}", 1 + world.dice(200)));
    own
}

#[test]
fn service_addresses_scenario() {
    run_seeds(|| Addresses);
}
