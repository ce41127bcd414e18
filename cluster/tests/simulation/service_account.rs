//! Namespaces come and go and a client deletes accounts: every namespace that stays has its account, none that goes
//! is given one.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::namespace::nothing_is_going;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use machinery_meta::ObjectKey;
use serde_json::json;

struct Accounts;

impl Scenario for Accounts {
    const CONTROLLERS: &'static [&'static str] = &["serviceaccount-controller", "namespace-controller"];

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("n{}", world.dice(3));
        match (world.dice(3), model.get("Namespace", "", &name)) {
            (_, None) => world
                .create::<Namespace>(json!({"metadata": {"name": name}}))
                .await
                .unwrap(),
            (0, Some(own)) => world.delete::<Namespace>(&own.key).await,
            _ => {
                world
                    .delete::<ServiceAccount>(&ObjectKey::new(name, "default"))
                    .await
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(account) = change.made("ServiceAccount") else {
            return Ok(());
        };
        match model.get("Namespace", "", account.namespace()) {
            Some(_) => Ok(()),
            None => Err("made in a namespace that is gone".to_owned()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        nothing_is_going(model)?;
        let without = model
            .all("Namespace")
            .find(|own| model.get("ServiceAccount", own.name(), "default").is_none());
        without.map_or(Ok(()), |own| Err(format!("{} has no account", own.name())))
    }
}

#[test]
fn service_account_scenario() {
    run_seeds(|| Accounts);
}
