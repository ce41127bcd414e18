//! Priority: a pod's priority class becomes its number and its preemption policy.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectHeader};
use machinery_schema::{Ref, Tree};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;

const GROUP: &str = "scheduling.k8s.io";
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

pub(super) struct Priority {
    reader: Arc<dyn ObjectReader>,
    /// The classes there were when they were last read, each with the header it had: an object that has changed has
    /// another one.
    known: Mutex<Vec<(Arc<ObjectHeader>, Class)>>,
}

impl Priority {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self {
            reader: Arc::clone(reader),
            known: Mutex::default(),
        }
    }

    async fn class_of(&self, name: &str) -> Result<Class, AdmissionError> {
        if name.is_empty() {
            return self.default_class().await;
        }
        let found = find(&*self.reader, GROUP, "priorityclasses", "", name).await?;
        found
            .and_then(|object| serde_json::from_slice(&object.json).ok())
            .ok_or_else(|| AdmissionError::forbidden(format!("no PriorityClass with name {name} was found")))
    }

    /// Of the global defaults the lowest one counts.
    async fn default_class(&self) -> Result<Class, AdmissionError> {
        let all = self
            .reader
            .list(&GroupResource::new(GROUP, "priorityclasses"), "")
            .await?;
        let mut known = self.known.lock();
        let same = known.len() == all.len()
            && known
                .iter()
                .zip(&all)
                .all(|((header, _), object)| Arc::ptr_eq(header, &object.header));
        if !same {
            let class = |object: &ReadObject| serde_json::from_slice(&object.json).unwrap_or_default();
            *known = all
                .iter()
                .map(|object| (Arc::clone(&object.header), class(object)))
                .collect();
        }
        let defaults = known
            .iter()
            .map(|(_, class)| class)
            .filter(|class| class.global_default);
        Ok(defaults
            .min_by_key(|class| class.value)
            .cloned()
            .unwrap_or_default())
    }
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class {
    metadata: Metadata,
    value: i64,
    global_default: bool,
    preemption_policy: Option<String>,
}

#[derive(Debug, Clone, Deserialize, Default)]
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
