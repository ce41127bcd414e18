//! The claims that a pod lacks: pure.

use serde_json::{Value, json};

/// One step, in the order of the pod's volumes; nothing follows a refusal.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Creates the claim of the volume.
    Create { volume: String, claim: Value },
    /// The claim of the volume is not the pod's.
    Refuse { volume: String, why: String },
}

/// The steps for a pod; `owner` answers the uid of a claim's controller, empty where it has none, `None` where there is no
/// such claim.
pub(super) fn of_pod(pod: &Value, owner: impl Fn(&str) -> Option<String>) -> Vec<Step> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let (namespace, pod_name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let mut steps = Vec::new();
    for source in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let volume = text(&source["name"]);
        if source["ephemeral"].is_null() {
            continue;
        }
        let name = format!("{pod_name}-{volume}");
        match owner(&name) {
            None => {
                let claim = claim(pod, &name, &source["ephemeral"]["volumeClaimTemplate"]);
                steps.push(Step::Create { volume, claim });
            }
            Some(uid) if metadata["uid"] == *uid && !uid.is_empty() => {}
            Some(_) => {
                let why = format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
                );
                steps.push(Step::Refuse { volume, why });
                break;
            }
        }
    }
    steps
}

fn claim(pod: &Value, name: &str, template: &Value) -> Value {
    let metadata = &pod["metadata"];
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": metadata["namespace"],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
                "controller": true, "blockOwnerDeletion": true
            }]
        },
        "spec": template["spec"]
    });
    for part in ["annotations", "labels"] {
        if template["metadata"][part].is_object() {
            claim["metadata"][part] = template["metadata"][part].clone();
        }
    }
    claim
}
