//! A Deployment and the bounds of its autoscaler change: whatever happens, an autoscaler gives no size beyond its bounds, and it
//! leaves alone what users have emptied. No node is there to measure.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};

const KIND: &str = "HorizontalPodAutoscaler";

#[derive(Default)]
struct Bounds {
    /// Sizes that autoscalers gave.
    given: usize,
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "a")
}

fn bounds(least: u64, span: u64) -> Value {
    json!({"minReplicas": least, "maxReplicas": least + span})
}

async fn create(world: &World, least: u64, span: u64) {
    let mut spec = bounds(least, span);
    spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": spec});
    drop(world.create::<HorizontalPodAutoscaler>(autoscaler).await);
}

impl Scenario for Bounds {
    const CONTROLLERS: &'static [&'static str] = &["horizontal-pod-autoscaler-controller"];
    const STEPS: u32 = 40;
    const STEP_MILLIS: u64 = 30_000;

    async fn begin(&mut self, world: &World) {
        let labels = json!({"app": "a"});
        let deployment = json!({"metadata": {"name": "a"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": labels}, "template": template(&labels)}});
        world.create::<Deployment>(deployment).await.unwrap();
        create(world, 2, 3).await;
    }

    async fn step(&mut self, world: &World, _: &ReferenceModel) {
        let (least, span) = (1 + world.dice(5), world.dice(5));
        match world.dice(6) {
            0 => world.delete::<HorizontalPodAutoscaler>(&key()).await,
            1 | 2 => create(world, least, span).await,
            3 => {
                let patch = json!({"spec": bounds(least, span)});
                world.patch::<HorizontalPodAutoscaler>(&key(), patch).await;
            }
            _ => world.scale::<Deployment>(&key(), world.dice(12)).await,
        }
    }

    async fn final_step(&mut self, world: &World) {
        create(world, 2, 3).await;
        world.scale::<Deployment>(&key(), 0).await;
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return Ok(());
        };
        if after.kind != KIND || before.at("/status/lastScaleTime") == after.at("/status/lastScaleTime") {
            return Ok(());
        }
        self.given += 1;
        let size = after.number("/status/desiredReplicas");
        let (least, most) = (
            after.number("/spec/minReplicas"),
            after.number("/spec/maxReplicas"),
        );
        match (least..=most).contains(&size) {
            true => Ok(()),
            false => Err(format!("{size} is not within {least} and {most}")),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        let own = model.get(KIND, "default", "a").ok_or("no autoscaler")?;
        let active = own.condition("ScalingActive");
        let size = model
            .get("Deployment", "default", "a")
            .map(|own| own.number("/spec/replicas"));
        match (active, size, self.given) {
            ("False", Some(0), 1..) => Ok(()),
            state => Err(format!("{state:?}")),
        }
    }
}

#[test]
fn autoscalers_keep_their_bounds() {
    run_seeds(Bounds::default);
}
