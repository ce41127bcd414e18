//! Namespaces with content of every sort are deleted and recreated: nothing goes from one that stays, pods go first,
//! and none goes before it is empty.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use machinery_meta::ObjectKey;
use serde_json::json;
use std::sync::Arc;

const HOLD: &str = "example.com/hold";

struct Namespaces;

impl Scenario for Namespaces {
    const CONTROLLERS: &'static [&'static str] = &["namespace-controller"];
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        for number in 0..3 {
            make(world, number).await;
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let number = world.dice(3);
        let name = format!("n{number}");
        let Some(own) = model.get("Namespace", "", &name) else {
            return make(world, number).await;
        };
        let content = format!("c{}", world.dice(u64::MAX));
        let finalizers = if world.once_in(4) {
            json!([HOLD])
        } else {
            json!([])
        };
        let metadata = json!({"name": content, "namespace": name, "finalizers": finalizers});
        // What is made in a namespace that goes is refused; that is how it should be.
        let _refused = match world.dice(5) {
            0 => world.create::<ConfigMap>(json!({"metadata": metadata})).await,
            1 => world.create::<Secret>(json!({"metadata": metadata})).await,
            2 | 3 => {
                let mut pod = template(&json!({}));
                pod["metadata"] = metadata;
                if world.once_in(2) {
                    pod["spec"]["nodeName"] = json!("n");
                }
                world.create::<Pod>(pod).await
            }
            _ => {
                world.delete::<Namespace>(&own.key).await;
                Ok(())
            }
        };
    }

    async fn run_nodes(&mut self, world: &World, model: &ReferenceModel) {
        let going = ["Pod", "ConfigMap", "Secret"]
            .iter()
            .flat_map(|kind| model.all(kind));
        for object in going.filter(|own| own.is_deleting()) {
            if world.once_in(3) {
                release(world, object).await;
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        if let Some(namespace) = change.gone("Namespace") {
            let left = model.inside(namespace.name()).next();
            return left.map_or(Ok(()), |left| Err(format!("{} {} is left", left.kind, left.key)));
        }
        let Some(before) = &change.before else {
            return Ok(());
        };
        let Some(namespace) = model.get("Namespace", "", before.namespace()) else {
            return Ok(());
        };
        let went = change
            .after
            .as_ref()
            .is_none_or(|after| after.is_deleting() && !before.is_deleting());
        if went && !namespace.is_deleting() {
            return Err("it went from a namespace that stays".to_owned());
        }
        let pods = model.all("Pod").any(|pod| pod.namespace() == before.namespace());
        if went && before.kind != "Pod" && pods {
            return Err("it went before the pods".to_owned());
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        nothing_is_going(model)
    }
}

/// No namespace waits to be emptied.
pub(crate) fn nothing_is_going(model: &ReferenceModel) -> Result<(), String> {
    let going = |own: &&Arc<ObjectVersion>| own.is_deleting();
    let left = model.all("Namespace").find(going);
    left.map_or(Ok(()), |own| {
        Err(format!("{} is still there: {:?}", own.key, own.at("/status")))
    })
}

async fn make(world: &World, number: u64) {
    let name = format!("n{number}");
    // It may be there still, on its way out.
    if world
        .create::<Namespace>(json!({"metadata": {"name": name}}))
        .await
        .is_ok()
    {
        let account = json!({"metadata": {"name": "default", "namespace": name}});
        world.create::<ServiceAccount>(account).await.unwrap();
    }
}

/// Removes the finalizers of an object that is being deleted, and ends pods as their nodes would.
async fn release(world: &World, object: &ObjectVersion) {
    if object.kind == "Pod" && object.text("/spec/nodeName") == "n" {
        world.pod_has_ended(object).await;
    }
    let free = json!({"metadata": {"finalizers": null}});
    let key: &ObjectKey = &object.key;
    match object.kind.as_str() {
        "Pod" => world.patch::<Pod>(key, free).await,
        "Secret" => world.patch::<Secret>(key, free).await,
        _ => world.patch::<ConfigMap>(key, free).await,
    }
}

#[test]
fn namespace_scenario() {
    run_seeds(|| Namespaces);
}
