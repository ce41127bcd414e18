//! Pods of two sets become ready, vanish and are evicted, sizes and budgets change, while messages are lost: no eviction is let
//! through by a budget that had none left or had not seen its own spec, and in the end the budgets say what is true.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinery_client::ApiResource;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::sync::Arc;

const LARGEST: u64 = 6;

struct Disruption;

/// Spec of a budget; its share is of the size that the set's spec has.
fn spec(app: &str, rule: u64) -> Value {
    let (name, other, value) = match rule {
        0 => ("minAvailable", "maxUnavailable", json!(2)),
        1 => ("minAvailable", "maxUnavailable", json!("50%")),
        2 => ("maxUnavailable", "minAvailable", json!(1)),
        _ => ("maxUnavailable", "minAvailable", json!("30%")),
    };
    json!({"selector": {"matchLabels": {"app": app}}, name: value, other: null})
}

impl Scenario for Disruption {
    const CONTROLLERS: &'static [&'static str] = &["replicaset-controller", "disruption-controller"];
    const STEPS: u32 = 30;

    async fn begin(&mut self, world: &World) {
        for app in ["a", "b"] {
            let labels = json!({"app": app});
            let set = json!({"metadata": {"name": app}, "spec": {
                "replicas": 4, "selector": {"matchLabels": labels}, "template": template(&labels)}});
            world.create::<ReplicaSet>(set).await.unwrap();
            let budget = json!({"metadata": {"name": app}, "spec": spec(app, world.dice(4))});
            world.create::<PodDisruptionBudget>(budget).await.unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let app = if world.once_in(2) { "a" } else { "b" };
        let key = ObjectKey::new("default", app);
        let Some(pod) = world.pick(model.all("Pod").cloned().collect()) else {
            return world.scale::<ReplicaSet>(&key, 4).await;
        };
        match world.dice(10) {
            0 => world.scale::<ReplicaSet>(&key, world.dice(LARGEST + 1)).await,
            1 => {
                let body = json!({"spec": spec(app, world.dice(4))});
                world.patch::<PodDisruptionBudget>(&key, body).await;
            }
            2 => world.delete::<Pod>(&pod.key).await,
            3..6 => evict(world, &pod).await,
            _ => world.pod_is_ready(&pod).await,
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return Ok(());
        };
        if after.kind != "PodDisruptionBudget" {
            return Ok(());
        }
        let allowed = after.number("/status/disruptionsAllowed");
        let spare = after.number("/status/currentHealthy") - after.number("/status/desiredHealthy");
        if allowed < 0 || allowed > spare.max(0) {
            return Err(format!("{allowed} allowed, {spare} to spare"));
        }
        let new = disrupted(after)
            .into_iter()
            .find(|pod| !disrupted(before).contains(pod));
        let Some(pod) = new else { return Ok(()) };
        let seen = before.number("/status/observedGeneration") == before.generation;
        if before.number("/status/disruptionsAllowed") < 1 || !seen {
            return Err(format!("{pod} was let go by {}", before.value()["status"]));
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for budget in model.all("PodDisruptionBudget") {
            let status = &budget.value()["status"];
            let (found, wanted) = (numbers(budget), expected(model, budget));
            let seen = budget.number("/status/observedGeneration") == budget.generation;
            let word = if wanted[0] > 0 { "True" } else { "False" };
            let said = budget.condition("DisruptionAllowed") == word;
            if found != wanted || !seen || !said || !disrupted(budget).is_empty() {
                return Err(format!("{}: {status}, and true is {wanted:?}", budget.key));
            }
        }
        let stale =
            |pod: &&Arc<ObjectVersion>| pod.is_active_pod() && pod.condition("DisruptionTarget") == "True";
        model
            .all("Pod")
            .find(stale)
            .map_or(Ok(()), |pod| Err(format!("{} is still to be disrupted", pod.key)))
    }
}

fn disrupted(budget: &ObjectVersion) -> Vec<String> {
    let pods = budget.at("/status/disruptedPods").and_then(Value::as_object);
    pods.into_iter().flat_map(|pods| pods.keys().cloned()).collect()
}

fn numbers(budget: &ObjectVersion) -> [i64; 4] {
    [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ]
    .map(|name| budget.number(&format!("/status/{name}")))
}

/// The numbers that are true of a budget.
fn expected(model: &ReferenceModel, budget: &ObjectVersion) -> [i64; 4] {
    let app = budget.name();
    let pods: Vec<_> = model
        .all("Pod")
        .filter(|pod| pod.label("app") == Some(app))
        .collect();
    let healthy = pods.iter().filter(|pod| pod.is_ready_pod()).count() as i64;
    let set = model.get("ReplicaSet", "default", app).unwrap();
    // Without a pod the set is unknown.
    let size = if pods.is_empty() {
        0
    } else {
        set.number("/spec/replicas")
    };
    let share = |percent: i64| (size * percent + 99) / 100;
    let (least, most) = (budget.at("/spec/minAvailable"), budget.at("/spec/maxUnavailable"));
    let (expected, desired) = match (least, most) {
        (Some(Value::Number(least)), None) => (pods.len() as i64, least.as_i64().unwrap()),
        (Some(_), None) => (size, share(50)),
        (None, Some(Value::Number(most))) => (size, (size - most.as_i64().unwrap()).max(0)),
        (None, Some(_)) => (size, size - share(30)),
        other => panic!("{other:?}"),
    };
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    [allowed, healthy, desired, expected]
}

/// Evicts as `kubectl drain` does; the eviction may be refused.
async fn evict(world: &World, pod: &ObjectVersion) {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name(), "namespace": pod.namespace()}});
    let pods = ApiResource::of::<Pod>();
    drop(
        world
            .client
            .create_subresource(&pods, &pod.key, "eviction", &body)
            .await,
    );
}

#[test]
fn disruption_scenario() {
    run_seeds(|| Disruption);
}
