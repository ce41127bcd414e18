//! Pods that are to be made: template, identity, claims.

use super::claims::with_volumes;
use super::identity::{POD_INDEX, POD_NAME, REVISION, pod_name};
use crate::views::StatefulSetView;
use crate::views::template::{EditedTemplate, PodTemplate};
use machinery_client::Object;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// The template of the pod with this ordinal.
pub(super) fn template(
    set: &Object<StatefulSetView>,
    template: &PodTemplate,
    revision: &str,
    claim_templates: &[Value],
    ordinal: i32,
) -> Result<EditedTemplate, serde_json::Error> {
    let name = pod_name(set.name(), ordinal.into());
    let mut edited = template.to_edit();
    edited.metadata.labels.extend([
        (POD_NAME.to_owned(), name.clone()),
        (POD_INDEX.to_owned(), ordinal.to_string()),
        (REVISION.to_owned(), revision.to_owned()),
    ]);
    let mut spec: Map<String, Value> = serde_json::from_str(edited.spec.get())?;
    spec.insert("hostname".to_owned(), json!(name));
    spec.insert("subdomain".to_owned(), json!(set.service_name));
    let spec: Box<RawValue> = to_raw_value(&with_volumes(spec, set.name(), claim_templates, ordinal))?;
    edited.spec = spec.into();
    Ok(edited)
}
