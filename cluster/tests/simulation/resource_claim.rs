//! Pods with claims from a template come, end and go, while the template comes and goes and claims are deleted: no pod ever
//! has two claims of one name, and in the end each pod that may run has its claim, and no claim is left of one that is done.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::replica_set::template;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use machinery_meta::ObjectKey;
use serde_json::json;

const CLAIM: &str = "ResourceClaim";
const NOTED: &str = "/status/resourceClaimStatuses/0/resourceClaimName";

#[derive(Default)]
struct Claims {
    next: u64,
}

async fn make_template(world: &World) {
    let spec =
        json!({"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "c"}}]}}});
    let own = json!({"metadata": {"name": "t"}, "spec": spec});
    drop(world.create::<ResourceClaimTemplate>(own).await);
}

impl Scenario for Claims {
    const CONTROLLERS: &'static [&'static str] =
        &["resourceclaim-controller", "garbage-collector-controller"];
    const STEPS: u32 = 40;

    async fn begin(&mut self, world: &World) {
        make_template(world).await;
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let pod = world.pick(model.all("Pod").cloned().collect());
        let claim = world.pick(model.all(CLAIM).cloned().collect());
        match (world.dice(10), pod, claim) {
            (0, Some(pod), _) => world.pod_is(&pod, "Succeeded").await,
            (1 | 2, Some(pod), _) => world.pod_has_ended(&pod).await,
            (3, _, Some(claim)) => world.delete::<ResourceClaim>(&claim.key).await,
            (4, ..) => {
                world
                    .delete::<ResourceClaimTemplate>(&ObjectKey::new("default", "t"))
                    .await
            }
            (5, ..) => make_template(world).await,
            _ => {
                self.next += 1;
                let mut pod = template(&json!({"app": "a"}));
                pod["metadata"]["name"] = json!(format!("p{}", self.next));
                pod["spec"]["resourceClaims"] = json!([{"name": "d", "resourceClaimTemplateName": "t"}]);
                world.create::<Pod>(pod).await.unwrap();
            }
        }
    }

    async fn final_step(&mut self, world: &World) {
        make_template(world).await;
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(made) = change.made(CLAIM) else {
            return Ok(());
        };
        let owner = made.controller().map(|own| own.uid.clone());
        let of_owner = |own: &&std::sync::Arc<ObjectVersion>| {
            !own.is_deleting() && own.controller().map(|own| own.uid.clone()) == owner
        };
        match model.all(CLAIM).filter(of_owner).count() {
            1 => Ok(()),
            count => Err(format!("{count} claims of one pod")),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for pod in model.all("Pod") {
            let claims: Vec<_> = model.all(CLAIM).filter(|own| own.is_controlled_by(pod)).collect();
            let names: Vec<_> = claims.iter().map(|own| own.name()).collect();
            let expected = match pod.is_ended_pod() {
                true => vec![],
                false => vec![pod.text(NOTED)],
            };
            if names != expected {
                return Err(format!("{} has {names:?}, not {expected:?}", pod.key));
            }
        }
        let owned = |claim: &ObjectVersion| model.all("Pod").any(|pod| claim.is_controlled_by(pod));
        let left = model.all(CLAIM).find(|claim| !owned(claim));
        left.map_or(Ok(()), |own| Err(format!("{} is left", own.key)))
    }
}

#[test]
fn pods_have_their_claims() {
    run_seeds(Claims::default);
}
