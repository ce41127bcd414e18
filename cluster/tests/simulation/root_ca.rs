//! Namespaces come and go and a client changes and deletes what is published: every namespace that stays has the
//! cluster's authority, unaltered.

use crate::Scenario;
use crate::disk_snapshot::Image;
use crate::model::{Change, ReferenceModel};
use crate::namespace::nothing_is_going;
use crate::runner::run_seeds;
use crate::simulated_cluster::World;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use machinery_meta::ObjectKey;
use serde_json::json;

const NAME: &str = "kube-root-ca.crt";

struct RootCa;

impl Scenario for RootCa {
    const CONTROLLERS: &'static [&'static str] =
        &["root-ca-certificate-publisher-controller", "namespace-controller"];

    async fn begin(&mut self, _: &World) {}

    async fn step(&mut self, world: &World, model: &ReferenceModel) {
        let name = format!("n{}", world.dice(3));
        let published = ObjectKey::new(name.clone(), NAME);
        match (world.dice(4), model.get("Namespace", "", &name)) {
            (_, None) => world
                .create::<Namespace>(json!({"metadata": {"name": name}}))
                .await
                .unwrap(),
            (0, Some(own)) => world.delete::<Namespace>(&own.key).await,
            (1, _) => world.delete::<ConfigMap>(&published).await,
            (2, _) => {
                world
                    .patch::<ConfigMap>(&published, json!({"data": {"ca.crt": "false"}}))
                    .await
            }
            _ => {
                world
                    .patch::<ConfigMap>(&published, json!({"data": {"more": "than that"}}))
                    .await
            }
        }
    }

    fn check_invariant(&mut self, model: &ReferenceModel, change: &Change) -> Result<(), String> {
        let Some(published) = change.made("ConfigMap") else {
            return Ok(());
        };
        match model.get("Namespace", "", published.namespace()) {
            Some(_) => Ok(()),
            None => Err("made in a namespace that is gone".to_owned()),
        }
    }

    fn check_converged(&self, model: &ReferenceModel) -> Result<(), String> {
        nothing_is_going(model)?;
        let right = json!({"ca.crt": Image::get().keys.cluster.certificate_pem()});
        for namespace in model.all("Namespace") {
            let published = model.get("ConfigMap", namespace.name(), NAME);
            if published.and_then(|own| own.at("/data")) != Some(&right) {
                return Err(format!("{} has {published:?}", namespace.name()));
            }
        }
        Ok(())
    }
}

#[test]
fn root_ca_scenario() {
    run_seeds(|| RootCa);
}
