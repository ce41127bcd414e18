//! ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of its name, by which nodes with
//! such devices keep other pods away. Off by default, as upstream's.

use super::objects::push_json;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::syntax::qualified_name;
use machinery_schema::{Ref, Tree};
use std::collections::BTreeSet;

const REQUESTS: &str = "requests.";
const NATIVE: &str = "kubernetes.io/";
const TOLERATIONS: [&str; 2] = ["spec", "tolerations"];

pub(super) struct ExtendedResourceToleration;

/// Upstream's `IsExtendedResourceName`.
fn is_extended(resource: &str) -> bool {
    let is_native = !resource.contains('/') || resource.contains(NATIVE);
    !is_native
        && !resource.starts_with(REQUESTS)
        && qualified_name(&format!("{REQUESTS}{resource}")).is_empty()
}

/// Extended resources that containers request, in order.
fn extended(pod: &Tree) -> BTreeSet<String> {
    let spec = pod.get("spec");
    let lists = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| spec?.get(list));
    let requests = lists
        .flat_map(Ref::items)
        .filter_map(|own| own.at(&["resources", "requests"]));
    let names = requests.flat_map(Ref::entries).map(|(name, _)| name);
    names
        .filter(|name| is_extended(name))
        .map(str::to_owned)
        .collect()
}

/// Reports whether a toleration is that of the taint, whatever its seconds.
fn matches(toleration: Ref<'_>, key: &str) -> bool {
    let text = ["key", "operator", "effect", "value"].map(|member| toleration.str(member));
    text == [key, "Exists", "NoSchedule", ""]
}

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn mutate(&self, _: &Request<'_>, pod: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        let mut wanted = extended(pod);
        if wanted.is_empty() {
            return Ok(());
        }
        pod.with(&TOLERATIONS, |mut all| {
            all.each_item(|mut one| {
                let key = one.as_ref().str("key").to_owned();
                if matches(one.as_ref(), &key) && wanted.remove(&key) {
                    one.remove("tolerationSeconds");
                }
            });
        });
        for key in wanted {
            let key = serde_json::Value::from(key);
            let toleration = format!(r#"{{"key":{key},"operator":"Exists","effect":"NoSchedule"}}"#);
            push_json(pod, &TOLERATIONS, &toleration);
        }
        Ok(())
    }
}
