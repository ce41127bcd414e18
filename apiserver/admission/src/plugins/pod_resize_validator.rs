//! PodResizeValidator: a pod on a node is not resized beyond what the node has. The scheduler counts what a pod requests from
//! the moment at which it is stored, so that one pod would close its node to all others.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, PodSpec};
use machinery_meta::Quantity;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Ref, Tree};
use machinery_semantics::ResourceList;
use machinery_semantics::resources::pod_requests;
use std::sync::Arc;

/// Label of the node's operating system.
const OS: &str = "kubernetes.io/os";

pub(super) struct PodResizeValidator {
    reader: Arc<dyn ObjectReader>,
}

impl PodResizeValidator {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        let reader = Arc::clone(reader);
        Self { reader }
    }
}

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let is_resize = request.resource == "pods" && request.subresource == "resize";
        request.group.is_empty() && is_resize && request.operation == Operation::Update
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
        if name.is_empty() || pod.get("spec") == old.get("spec") {
            return Ok(());
        }
        let Some(found) = find(&*self.reader, "", "nodes", "", name).await? else {
            return Err(AdmissionError::forbidden(format!("node {name:?} not found")));
        };
        let unreadable = |error: serde_json::Error| AdmissionError::Internal(error.to_string());
        let node: Node = serde_json::from_slice(&found.json).map_err(unreadable)?;
        let spec = pod.get("spec").map(Ref::to_json).unwrap_or_default();
        let spec: PodSpec = serde_json::from_str(&spec).map_err(unreadable)?;
        check(name, &node, &spec)
    }
}

fn check(name: &str, node: &Node, spec: &PodSpec) -> Result<(), AdmissionError> {
    let refused = |cause: &str, why: String| AdmissionError::ForbiddenFor {
        why,
        cause: cause.to_owned(),
    };
    let labels = node.metadata.labels.as_ref();
    if let Some(os) = labels.and_then(|own| own.get(OS)).filter(|os| *os != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
        return Err(refused("UnsupportedPlatform", why));
    }
    let allocatable = node.status.as_ref().and_then(|own| own.allocatable.as_ref());
    let (has, asked) = (ResourceList::from_api(allocatable), pod_requests(spec));
    let short = |resource: &str, amount: fn(Quantity) -> i64| {
        let (asked, has) = (asked.get(resource), has.get(resource));
        let (wanted, there) = (amount(asked), amount(has));
        (asked > has).then(|| format!("{resource}, requested: {wanted}, allocatable: {there}"))
    };
    let short = [short("cpu", Quantity::millis), short("memory", Quantity::units)];
    let short: Vec<String> = short.into_iter().flatten().collect();
    if short.is_empty() {
        return Ok(());
    }
    let short = short.join("; ");
    let why = format!("node didn't have enough allocatable resources: {short}");
    Err(refused("NodeCapacity", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn refused(node: Value, requests: Value, expected: Option<(&str, &str)>) {
        let node: Node = serde_json::from_value(node).unwrap();
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let found = match check("n", &node, &spec) {
            Ok(()) => None,
            Err(AdmissionError::ForbiddenFor { why, cause }) => Some((why, cause)),
            Err(other) => panic!("{other}"),
        };
        let found = found.as_ref().map(|(why, cause)| (why.as_str(), cause.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn resize_is_bounded_by_what_the_node_has() {
        let node = json!({"metadata": {"labels": {OS: "linux"}}, "status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}});
        refused(node.clone(), json!({"cpu": "4", "memory": "1Gi"}), None);
        let cpu = "node didn't have enough allocatable resources: cpu, requested: 1000000, allocatable: 4000";
        refused(node.clone(), json!({"cpu": "1000"}), Some((cpu, "NodeCapacity")));
        let both = "node didn't have enough allocatable resources: cpu, requested: 4001, allocatable: 4000; memory, requested: 2147483648, allocatable: 1073741824";
        refused(
            node,
            json!({"cpu": "4001m", "memory": "2Gi"}),
            Some((both, "NodeCapacity")),
        );
        let windows =
            json!({"metadata": {"labels": {OS: "windows"}}, "status": {"allocatable": {"cpu": "4"}}});
        let why = "pod resize is only supported on linux nodes, node \"n\" is \"windows\"";
        refused(windows, json!({"cpu": "1"}), Some((why, "UnsupportedPlatform")));
        let unlabelled = json!({"metadata": {}, "status": {"allocatable": {"cpu": "4"}}});
        refused(unlabelled, json!({"cpu": "1"}), None);
    }
}
