//! Roles come, change and go, and a client writes into the aggregated ones: those end up with the rules of the roles
//! they select, and never have one that no role gave.

use crate::Scenario;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};

#[derive(Default)]
struct Aggregated {
    /// Every rule that some role was given.
    given: Vec<Value>,
}

const AGGREGATED: [&str; 2] = ["all-a", "all-b"];

impl Scenario for Aggregated {
    const CONTROLLERS: &'static [&'static str] = &["clusterrole-aggregation-controller"];
    const STEPS: u32 = 30;

    async fn begin(&mut self, world: &World) {
        for name in AGGREGATED {
            let into = name.trim_start_matches("all-");
            // One aggregates into the other, as `edit` does into `admin`.
            let labels = if into == "a" {
                json!({"into": "b"})
            } else {
                json!({})
            };
            let role = json!({"metadata": {"name": name, "labels": labels}, "rules": [],
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"into": into}}]}});
            world.create::<ClusterRole>(role).await.unwrap();
        }
    }

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("r{}", world.dice(4));
        let verb = ["get", "list", "watch", "create"][usize::try_from(world.dice(4)).unwrap()];
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
        self.given.push(rules[0].clone());
        let into = if world.once_in(2) { "a" } else { "b" };
        let metadata = json!({"name": name, "labels": {"into": into}});
        match (world.dice(4), model.get("ClusterRole", "", &name)) {
            (_, None) => {
                let role = json!({"metadata": metadata, "rules": rules});
                world.create::<ClusterRole>(role).await.unwrap();
            }
            (0, Some(own)) => world.delete::<ClusterRole>(&own.key).await,
            (1, Some(_)) => {
                let own = world.pick(AGGREGATED.to_vec()).unwrap();
                let own = model.get("ClusterRole", "", own).unwrap();
                world
                    .patch::<ClusterRole>(&own.key, json!({"rules": rules}))
                    .await;
            }
            (_, Some(own)) => {
                let body = json!({"metadata": {"labels": {"into": into}}, "rules": rules});
                world.patch::<ClusterRole>(&own.key, body).await;
            }
        }
    }

    fn check_invariant(&mut self, _: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(role) = change
            .after
            .as_ref()
            .filter(|own| AGGREGATED.contains(&own.name()))
        else {
            return Ok(());
        };
        let rules = role.list("/rules");
        let foreign = rules.iter().find(|rule| !self.given.contains(rule));
        foreign.map_or(Ok(()), |rule| Err(format!("nobody gave {rule}")))
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        for role in model
            .all("ClusterRole")
            .filter(|own| !own.list(SELECTORS).is_empty())
        {
            let expected = expected(model, role);
            let have = role.list("/rules");
            let same = have.len() == expected.len() && expected.iter().all(|rule| have.contains(rule));
            // An apply without rules takes away what the controller had written, and leaves a user's, as upstream's.
            let of_user = expected.is_empty() && !is_written_by_controller(role);
            if !same && !of_user {
                return Err(format!("{} has {have:?}, not {expected:?}", role.name()));
            }
        }
        Ok(())
    }
}

fn is_written_by_controller(role: &ObjectVersion) -> bool {
    let managers = role.list("/metadata/managedFields");
    managers
        .iter()
        .any(|own| own["manager"] == "clusterrole-aggregation-controller")
}

const SELECTORS: &str = "/aggregationRule/clusterRoleSelectors";

/// The rules of all selected roles, each once.
fn expected(model: &ReferenceModel, role: &ObjectVersion) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in role.list(SELECTORS) {
        let labels = selector["matchLabels"].as_object().unwrap();
        let selected =
            |own: &ObjectVersion| labels.iter().all(|(key, value)| own.label(key) == value.as_str());
        for other in model
            .all("ClusterRole")
            .filter(|own| own.uid != role.uid && selected(own))
        {
            rules.extend(other.list("/rules").iter().cloned());
        }
    }
    let mut once: Vec<Value> = Vec::new();
    for rule in rules {
        if !once.contains(&rule) {
            once.push(rule);
        }
    }
    once
}

#[test]
fn aggregated_roles_have_the_rules_they_select() {
    run_seeds(Aggregated::default);
}
