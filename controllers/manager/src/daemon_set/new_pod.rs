//! A pod for a node: the template with the revision's hash, a daemon's tolerations, and an affinity to the node's name.

use super::eligibility::Placement;
use crate::history::revisions::POD_HASH;
use crate::views::DaemonSetView;
use crate::views::template::{EditedTemplate, TemplateMeta};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The label by which old clients distinguish generations of a template.
pub(super) const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// Fields that all pods of a set have in common.
#[derive(Debug)]
pub(super) struct DaemonPods {
    metadata: TemplateMeta,
    spec: BTreeMap<String, Box<RawValue>>,
    affinity: Value,
}

impl DaemonPods {
    pub(super) fn of(
        set: &DaemonSetView,
        placement: &Placement,
        hash: &str,
    ) -> Result<Self, serde_json::Error> {
        let mut metadata = set.template.metadata.to_meta();
        let generation = set.template_generation.map(|own| own.to_string());
        let generation = generation.map(|own| (TEMPLATE_GENERATION.to_owned(), own));
        metadata.labels.extend(generation);
        metadata.labels.insert(POD_HASH.to_owned(), hash.to_owned());
        let mut spec: BTreeMap<String, Box<RawValue>> = serde_json::from_str(set.template.spec.get())?;
        spec.insert("tolerations".to_owned(), to_raw_value(&placement.tolerations)?);
        let affinity = spec.get("affinity").map(|own| serde_json::from_str(own.get()));
        Ok(Self {
            metadata,
            affinity: affinity.transpose()?.unwrap_or_default(),
            spec,
        })
    }

    /// The template of the pod of one node.
    pub(super) fn on(&self, node: &str) -> Result<EditedTemplate, serde_json::Error> {
        let mut affinity = self.affinity.clone();
        let required = member(
            member(&mut affinity, "nodeAffinity"),
            "requiredDuringSchedulingIgnoredDuringExecution",
        );
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        *member(required, "nodeSelectorTerms") = json!([{"matchFields": [field]}]);
        let mut spec = self.spec.clone();
        spec.insert("affinity".to_owned(), to_raw_value(&affinity)?);
        Ok(EditedTemplate {
            metadata: self.metadata.clone(),
            spec: to_raw_value(&spec)?.into(),
        })
    }
}

/// The member of an object, made where it is missing.
fn member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    &mut value[name]
}
