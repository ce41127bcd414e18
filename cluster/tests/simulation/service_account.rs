//! Namespaces come and go and somebody deletes accounts: every namespace that stays has its account, none that goes
//! is given one.

use crate::Story;
use crate::model::{Change, Model};
use crate::namespace::nothing_is_going;
use crate::runner::tell;
use crate::world::World;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use machinery_meta::ObjectKey;
use serde_json::json;

struct Accounts;

impl Story for Accounts {
    const CONTROLLERS: &'static [&'static str] = &["serviceaccount-controller", "namespace-controller"];

    async fn begin(&mut self, _: &World) {}

    async fn act(&mut self, world: &World, model: &Model) {
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

    fn holds(&mut self, model: &Model, change: &Change) -> Result<(), String> {
        let Some(account) = change.made("ServiceAccount") else {
            return Ok(());
        };
        match model.get("Namespace", "", account.namespace()) {
            Some(_) => Ok(()),
            None => Err("made in a namespace that is gone".to_owned()),
        }
    }

    fn settled(&self, model: &Model) -> Result<(), String> {
        nothing_is_going(model)?;
        let without = model
            .all("Namespace")
            .find(|own| model.get("ServiceAccount", own.name(), "default").is_none());
        without.map_or(Ok(()), |own| Err(format!("{} has no account", own.name())))
    }
}

#[test]
fn service_account_scenario() {
    tell(|| Accounts);
}
