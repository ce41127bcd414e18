//! Accounts and Secrets for their tokens come and go: every such Secret that stays has a token of the account that it names,
//! and none is kept for an account that is gone.

use crate::Scenario;
use crate::model::{Change, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use machinery_meta::ObjectKey;
use serde_json::json;

const NAME: &str = "/metadata/annotations/kubernetes.io~1service-account.name";
const UID: &str = "/metadata/annotations/kubernetes.io~1service-account.uid";

struct Tokens;

impl Scenario for Tokens {
    const CONTROLLERS: &'static [&'static str] = &["serviceaccount-token-controller"];

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let account = format!("bot{}", world.dice(2));
        let secret = format!("token{}", world.dice(3));
        match (world.dice(4), model.get("ServiceAccount", "default", &account)) {
            (0, Some(own)) => world.delete::<ServiceAccount>(&own.key).await,
            (1, _) => world.delete::<Secret>(&ObjectKey::new("default", &secret)).await,
            (_, None) => {
                let body = json!({"metadata": {"name": account, "namespace": "default"},
                    "secrets": [{"name": secret}]});
                let _ = world.create::<ServiceAccount>(body).await;
            }
            _ => {
                let body = json!({"metadata": {"name": secret, "namespace": "default",
                    "annotations": {"kubernetes.io/service-account.name": account}},
                    "type": "kubernetes.io/service-account-token"});
                let _ = world.create::<Secret>(body).await;
            }
        }
    }

    /// A token stays what it is, whichever client writes the Secret.
    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return Ok(());
        };
        let (old, new) = (before.text("/data/token"), after.text("/data/token"));
        if change.is_of("Secret") && before.uid == after.uid && !old.is_empty() && old != new {
            return Err(format!("the token of {} has changed", after.name()));
        }
        Ok(())
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for secret in model.all("Secret").filter(|own| !own.text(NAME).is_empty()) {
            let account = model.get("ServiceAccount", "default", secret.text(NAME));
            let Some(account) = account.filter(|own| own.uid.0 == secret.text(UID)) else {
                return Err(format!("{} is of an account that is gone", secret.name()));
            };
            if secret.text("/data/token").is_empty() || secret.text("/data/namespace").is_empty() {
                return Err(format!("{} has no token of {}", secret.name(), account.name()));
            }
        }
        Ok(())
    }
}

#[test]
fn tokens_of_secrets_are_their_accounts() {
    run_seeds(|| Tokens);
}
