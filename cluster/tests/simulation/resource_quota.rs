//! Objects come and go in two namespaces while quotas come, go and change: no namespace ever has more than its quota lets
//! in, and in the end each quota says what its namespace uses.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NAMESPACES: [&str; 2] = ["one", "two"];
const QUOTAS: [&str; 2] = ["a", "b"];
const MAPS: &str = "count/configmaps";

#[derive(Default)]
struct Quotas {
    next: u64,
}

fn hard(world: &World) -> Value {
    json!({"pods": (2 + world.dice(5)).to_string(), "requests.cpu": format!("{}m", 300 + 100 * world.dice(5)),
        MAPS: (3 + world.dice(5)).to_string()})
}

impl Quotas {
    async fn make(&mut self, world: &World, namespace: &str) {
        self.next += 1;
        let metadata = json!({"name": format!("o{}", self.next), "namespace": namespace});
        // What a quota refuses is not made.
        if world.once_in(2) {
            drop(world.create::<ConfigMap>(json!({"metadata": metadata})).await);
            return;
        }
        let mut pod = template(&json!({"app": "a"}));
        pod["metadata"]["name"] = metadata["name"].clone();
        pod["metadata"]["namespace"] = metadata["namespace"].clone();
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        drop(world.create::<Pod>(pod).await);
    }

    async fn quota(&mut self, world: &World, namespace: &str) {
        let name = QUOTAS[usize::try_from(world.dice(2)).unwrap()];
        let (key, hard) = (ObjectKey::new(namespace, name), hard(world));
        match world.dice(3) {
            0 => world.delete::<ResourceQuota>(&key).await,
            1 => {
                world
                    .patch::<ResourceQuota>(&key, json!({"spec": {"hard": hard}}))
                    .await
            }
            _ => {
                let quota =
                    json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard}});
                drop(world.create::<ResourceQuota>(quota).await);
            }
        }
    }
}

impl Scenario for Quotas {
    const CONTROLLERS: &'static [&'static str] = &["resourcequota-controller"];
    const STEPS: u32 = 60;

    async fn begin(&mut self, world: &World) {
        for namespace in NAMESPACES {
            let own = json!({"metadata": {"name": namespace}});
            world.create::<Namespace>(own).await.unwrap();
            self.quota(world, namespace).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let namespace = NAMESPACES[usize::try_from(world.dice(2)).unwrap()];
        let all = model.inside(namespace).filter(|own| is_counted(own));
        let some = world.pick(all.cloned().collect());
        match (world.dice(10), some) {
            (0 | 1, _) => self.quota(world, namespace).await,
            (2 | 3, Some(own)) if own.kind == "Pod" => world.pod_has_ended(&own).await,
            (2 | 3, Some(own)) => world.delete::<ConfigMap>(&own.key).await,
            (4, Some(own)) if own.kind == "Pod" => world.pod_is(&own, "Succeeded").await,
            _ => self.make(world, namespace).await,
        }
    }

    async fn final_step(&mut self, world: &World) {
        for namespace in NAMESPACES {
            let quota =
                json!({"metadata": {"name": "a", "namespace": namespace}, "spec": {"hard": hard(world)}});
            drop(world.create::<ResourceQuota>(quota).await);
        }
    }

    /// A look at a cache that lags may give away what was charged just now, as upstream's does; so what is true at every
    /// revision is only that a quota's status speaks of what its spec requests, or did.
    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(quota) = change.after.as_ref().filter(|own| own.kind == "ResourceQuota") else {
            return Ok(());
        };
        let names = |part: &str| {
            let map = quota.at(part).and_then(Value::as_object);
            map.map(|own| own.keys().cloned().collect::<Vec<_>>())
                .unwrap_or_default()
        };
        let (hard, used) = (names("/status/hard"), names("/status/used"));
        // What is not counted yet is not there.
        match used.iter().all(|name| hard.contains(name)) {
            true => Ok(()),
            false => Err(format!("{hard:?} and {used:?}")),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for quota in model.all("ResourceQuota") {
            let expected = used(model, quota.namespace());
            let said = |name: &str| {
                let used = quota.at("/status/used").and_then(|own| own.get(name));
                used.and_then(Value::as_str).unwrap_or("").to_owned()
            };
            let own: BTreeMap<_, _> = expected.keys().map(|name| (*name, said(name))).collect();
            let same_hard = quota.at("/spec/hard") == quota.at("/status/hard");
            if own != expected || !same_hard {
                return Err(format!("{} says {own:?}, not {expected:?}", quota.key));
            }
        }
        let quotas = model.all("ResourceQuota").count();
        (quotas >= NAMESPACES.len())
            .then_some(())
            .ok_or_else(|| "no quotas".to_owned())
    }
}

fn is_counted(own: &ObjectVersion) -> bool {
    own.kind == "Pod" || own.kind == "ConfigMap"
}

/// Usage of a namespace, as quantities are written.
fn used(model: &ReferenceModel, namespace: &str) -> BTreeMap<&'static str, String> {
    let of = |kind: &str| {
        let all = model.all(kind).filter(|own| own.namespace() == namespace);
        all.filter(|own| !own.is_ended_pod()).count()
    };
    let pods = of("Pod");
    let cpu = match pods {
        0 => "0".to_owned(),
        10 => "1".to_owned(),
        pods => format!("{}m", pods * 100),
    };
    BTreeMap::from([
        ("pods", pods.to_string()),
        ("requests.cpu", cpu),
        (MAPS, of("ConfigMap").to_string()),
    ])
}

#[test]
fn quotas_say_what_is_used() {
    run_seeds(Quotas::default);
}
