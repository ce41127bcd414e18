//! Priority: a pod's priority class becomes its number and its preemption policy.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_meta::GroupResource;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Ref, Tree};
use serde::Deserialize;
use std::sync::Arc;

const GROUP: &str = "scheduling.k8s.io";
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

pub(super) struct Priority(Arc<dyn ObjectReader>);

impl Priority {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }

    async fn class_of(&self, name: &str) -> Result<Class, AdmissionError> {
        if name.is_empty() {
            return self.default_class().await;
        }
        let found = find(&*self.0, GROUP, "priorityclasses", "", name).await?;
        found
            .and_then(|object| serde_json::from_slice(&object.json).ok())
            .ok_or_else(|| AdmissionError::forbidden(format!("no PriorityClass with name {name} was found")))
    }

    /// Of the global defaults the lowest one counts.
    async fn default_class(&self) -> Result<Class, AdmissionError> {
        let all = self
            .0
            .list(&GroupResource::new(GROUP, "priorityclasses"), "")
            .await?;
        // Of most clusters none is; the few there are need not be read to know that.
        let parsed = all
            .iter()
            .filter(|object| says(&object.json, br#""globalDefault":true"#))
            .filter_map(|object| serde_json::from_slice::<Class>(&object.json).ok());
        Ok(parsed
            .filter(|class| class.global_default)
            .min_by_key(|class| class.value)
            .unwrap_or_default())
    }
}

fn says(json: &[u8], what: &[u8]) -> bool {
    json.windows(what.len()).any(|window| window == what)
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class {
    metadata: Metadata,
    value: i64,
    global_default: bool,
    preemption_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is("", "pods")
    }

    async fn mutate(&self, _: &Request<'_>, pod: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        let class = self.class_of(pod.str_at(&["spec", "priorityClassName"])).await?;
        if pod.str_at(&["spec", "priorityClassName"]).is_empty() && !class.metadata.name.is_empty() {
            pod.set_str(&["spec", "priorityClassName"], &class.metadata.name);
        }
        if let Some(own) = pod.at(&["spec", "priority"]).and_then(Ref::as_i64)
            && own != class.value
        {
            return Err(AdmissionError::forbidden(format!(
                "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                class.value
            )));
        }
        pod.set_i64(&["spec", "priority"], class.value);
        let policy = class.preemption_policy.as_deref().unwrap_or(DEFAULT_POLICY);
        let own = pod.str_at(&["spec", "preemptionPolicy"]);
        if !own.is_empty() && own != policy {
            return Err(AdmissionError::forbidden(format!(
                "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        pod.set_str(&["spec", "preemptionPolicy"], policy);
        Ok(())
    }
}
