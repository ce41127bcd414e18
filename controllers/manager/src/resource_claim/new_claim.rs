//! A claim as it is made for a pod.

use super::view::POD_CLAIM;
use machinery_meta::ObjectHeader;
use serde_json::{Value, json};

/// The longest beginning of a generated name: a hyphen and five characters come behind it.
const MAX_BASE: usize = 57;

/// The beginning of the names of claims made for this claim of a pod. Both names are cut in proportion where they are too
/// long together, so that something of each is left.
pub(super) fn prefix(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    let all = whole.len();
    if all <= MAX_BASE {
        return whole;
    }
    let cut = |name: &str| name[..name.len() * MAX_BASE / all].to_owned();
    format!("{}-{}", cut(pod), cut(claim))
}

/// The claim, from the template as the server has it.
pub(super) fn new_claim(
    pod: &ObjectHeader,
    claim: &str,
    template: &Value,
    (name, prefix): (&str, &str),
) -> Value {
    let meta = &template["spec"]["metadata"];
    let mut annotations = meta["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), json!(claim));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.uid.0, "controller": true});
    let mut metadata = json!({
        "name": name, "generateName": prefix, "namespace": pod.key.namespace, "annotations": annotations,
        "ownerReferences": [owner],
    });
    if let Some(labels) = meta["labels"].as_object() {
        metadata["labels"] = json!(labels);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "spec": template["spec"]["spec"],
    })
}
