//! NodeDeclaredFeatureValidator: a pod on a node is not changed in a way that the node does not say it can follow.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::Quantity;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Ref, Tree};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

const POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";
const INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";
const MEMORY_BACKED_VOLUMES: &str = "InPlacePodVerticalScalingMemoryBackedVolumes";

pub(super) struct NodeDeclaredFeatureValidator {
    reader: Arc<dyn ObjectReader>,
}

impl NodeDeclaredFeatureValidator {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        let reader = Arc::clone(reader);
        Self { reader }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    declared_features: BTreeSet<String>,
}

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let is_pod = request.group.is_empty() && request.resource == "pods";
        is_pod && request.operation == Operation::Update && ["", "resize"].contains(&request.subresource)
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let (Some(pod), Some(old)) = (object, old) else {
            return Ok(());
        };
        let name = pod.str_at(&["spec", "nodeName"]);
        // The generation follows the spec.
        if name.is_empty() || pod.get("spec") == old.get("spec") {
            return Ok(());
        }
        let needed = needed(old, pod);
        if needed.is_empty() {
            return Ok(());
        }
        let Some(found) = find(&*self.reader, "", "nodes", "", name).await? else {
            return Err(AdmissionError::forbidden(format!("node {name:?} not found")));
        };
        let node: Node = serde_json::from_slice(&found.json)
            .map_err(|error| AdmissionError::Internal(error.to_string()))?;
        let declared = &node.status.declared_features;
        let missing: Vec<&str> = needed
            .into_iter()
            .filter(|own| !declared.contains(*own))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(AdmissionError::forbidden(format!(
            "pod update requires features {} which are not available on node {name:?}",
            missing.join(", ")
        )))
    }
}

/// Features that a node needs to follow the change, sorted.
fn needed(old: &Tree, new: &Tree) -> Vec<&'static str> {
    let all = [
        (POD_LEVEL, resources_changed(old, new)),
        (INIT_CONTAINERS, init_containers_changed(old, new)),
        (MEMORY_BACKED_VOLUMES, volumes_changed(old, new)),
    ];
    all.into_iter()
        .filter_map(|(name, needs)| needs.then_some(name))
        .collect()
}

fn resources_changed(old: &Tree, new: &Tree) -> bool {
    let of = |pod: &Tree| pod.at(&["spec", "resources"]).map(amounts);
    of(old) != of(new)
}

/// Resources with amounts that compare by what they are worth.
fn amounts(resources: Ref<'_>) -> Vec<(String, String, Option<Quantity>)> {
    let mut all = Vec::new();
    for list in ["limits", "requests"] {
        for (name, amount) in resources.get(list).into_iter().flat_map(Ref::entries) {
            let amount = amount.as_str().and_then(|text| text.parse().ok());
            all.push((list.to_owned(), name.to_owned(), amount));
        }
    }
    all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    all
}

/// Reports whether an init container that ends before the others begin has other resources. Their list stays as it is.
fn init_containers_changed(old: &Tree, new: &Tree) -> bool {
    let (old, new) = (items(old, "initContainers"), items(new, "initContainers"));
    let differ = |(old, new): (Ref<'_>, Ref<'_>)| {
        old.get("restartPolicy").and_then(Ref::as_str) != Some("Always")
            && old.get("resources") != new.get("resources")
    };
    old.into_iter().zip(new).any(differ)
}

/// Reports whether a volume in memory has another size.
fn volumes_changed(old: &Tree, new: &Tree) -> bool {
    let (old, new) = (items(old, "volumes"), items(new, "volumes"));
    let size = |volume: Ref<'_>| -> Option<Quantity> {
        let size = volume.get("emptyDir")?.get("sizeLimit")?;
        size.as_str()?.parse().ok()
    };
    let in_memory = |volume: Ref<'_>| {
        let medium = volume.get("emptyDir").and_then(|own| own.get("medium"));
        medium.and_then(Ref::as_str) == Some("Memory")
    };
    let differ = |(old, new): (Ref<'_>, Ref<'_>)| {
        let same = old.get("name") == new.get("name");
        same && in_memory(new) && size(old).zip(size(new)).is_some_and(|(old, new)| old != new)
    };
    old.len() == new.len() && old.into_iter().zip(new).any(differ)
}

fn items<'a>(pod: &'a Tree, list: &str) -> Vec<Ref<'a>> {
    pod.at(&["spec", list]).into_iter().flat_map(Ref::items).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Objects, block_on};
    use super::*;
    use machinery_meta::UserInfo;

    /// The answer to a change of a pod's spec on a node that declares features.
    #[track_caller]
    fn check(declared: &str, old: &str, new: &str, expected: &str) {
        let node = format!(r#"{{"status":{{"declaredFeatures":{declared}}}}}"#);
        let reader: Arc<dyn ObjectReader> = Arc::new(Objects::default().with("nodes", "", "n1", &node));
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Update,
            group: "",
            kind: "",
            resource: "pods",
            subresource: "resize",
            namespace: "a",
            name: "p",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        let plugin = NodeDeclaredFeatureValidator::new(&reader);
        assert!(plugin.handles(&request));
        let pod = |spec: &str| Tree::from_json(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
        let answer = block_on(plugin.validate(&request, Some(&pod(new)), Some(&pod(old))));
        let found = answer.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found, expected, "{old} to {new}");
    }

    #[test]
    fn declared_features_bound_changes_of_pods() {
        let init = |policy: &str, cpu: &str| {
            format!(
                r#"{{"nodeName":"n1","initContainers":[{{"restartPolicy":"{policy}","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}"#
            )
        };
        let pod_level =
            |cpu: &str| format!(r#"{{"nodeName":"n1","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#);
        let volume = |medium: &str, size: &str| {
            format!(
                r#"{{"nodeName":"n1","volumes":[{{"name":"v","emptyDir":{{"medium":"{medium}","sizeLimit":"{size}"}}}}]}}"#
            )
        };
        let refused = |name: &str| {
            format!("pod update requires features {name} which are not available on node \"n1\"")
        };
        check(
            "[]",
            &init("Never", "1"),
            &init("Never", "2"),
            &refused(INIT_CONTAINERS),
        );
        check(
            r#"["InPlacePodVerticalScalingInitContainers"]"#,
            &init("Never", "1"),
            &init("Never", "2"),
            "",
        );
        check("[]", &init("Always", "1"), &init("Always", "2"), "");
        check("[]", &pod_level("1"), &pod_level("2"), &refused(POD_LEVEL));
        check("[]", &pod_level("1"), &pod_level("1000m"), "");
        check("[]", r#"{"nodeName":"n1"}"#, &pod_level("2"), &refused(POD_LEVEL));
        check(
            "[]",
            &volume("Memory", "1Gi"),
            &volume("Memory", "2Gi"),
            &refused(MEMORY_BACKED_VOLUMES),
        );
        check("[]", &volume("", "1Gi"), &volume("", "2Gi"), "");
        check(
            "[]",
            r#"{"nodeName":"n1"}"#,
            r#"{"nodeName":"n1","activeDeadlineSeconds":3}"#,
            "",
        );
        let unbound = r#"{"resources":{"requests":{"cpu":"1"}}}"#;
        check("[]", r#"{}"#, unbound, "");
        let absent = r#"{"nodeName":"n2","resources":{"requests":{"cpu":"1"}}}"#;
        check("[]", r#"{"nodeName":"n2"}"#, absent, "node \"n2\" not found");
    }
}
