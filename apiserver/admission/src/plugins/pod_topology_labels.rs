//! PodTopologyLabels: a pod has the zone and the region of its node as labels, from the moment it is bound.

use super::objects::find;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

pub(super) struct PodTopologyLabels {
    reader: Arc<dyn ObjectReader>,
}

impl PodTopologyLabels {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        let reader = Arc::clone(reader);
        Self { reader }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    labels: BTreeMap<String, String>,
}

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let is_pod = request.group.is_empty() && request.resource == "pods";
        is_pod && request.operation == Operation::Create && ["", "binding"].contains(&request.subresource)
    }

    /// The object is a pod or a Binding; storage copies the labels of a Binding to its pod.
    async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let is_binding = request.subresource == "binding";
        if is_binding && object.str_at(&["target", "kind"]) != "Node" {
            return Ok(());
        }
        let path: &[&str] = if is_binding {
            &["target", "name"]
        } else {
            &["spec", "nodeName"]
        };
        let name = object.str_at(path).to_owned();
        if name.is_empty() {
            return Ok(());
        }
        // A node that is not there has no labels; other checks refuse it where it matters.
        let Some(found) = find(&*self.reader, "", "nodes", "", &name).await? else {
            return Ok(());
        };
        let node: Node = serde_json::from_slice(&found.json)
            .map_err(|error| AdmissionError::Internal(error.to_string()))?;
        for label in LABELS {
            if let Some(value) = node.metadata.labels.get(label) {
                object.set_str(&["metadata", "labels", label], value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Objects, block_on};
    use super::*;
    use machinery_meta::UserInfo;

    /// The labels of a pod, or of a Binding to a node.
    #[track_caller]
    fn check(subresource: &str, object: &str, expected: &str) {
        let labels = r#"{"topology.kubernetes.io/zone":"z1","topology.kubernetes.io/region":"r1","topology.kubernetes.io/arbitrary":"x","a":"b"}"#;
        let objects = Objects::default()
            .with(
                "nodes",
                "",
                "n1",
                &format!(r#"{{"metadata":{{"labels":{labels}}}}}"#),
            )
            .with("nodes", "", "bare", r#"{"metadata":{"labels":{"a":"b"}}}"#);
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Create,
            group: "",
            kind: "",
            resource: "pods",
            subresource,
            namespace: "a",
            name: "p",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        let plugin = PodTopologyLabels::new(&reader);
        assert!(plugin.handles(&request));
        let mut tree = Tree::from_json(object).unwrap();
        block_on(plugin.mutate(&request, &mut tree, None)).unwrap();
        let found = tree
            .at(&["metadata", "labels"])
            .map(|own| own.to_json())
            .unwrap_or_default();
        assert_eq!(found, expected, "{object}");
    }

    /// Cases of upstream's `podtopologylabels/admission_test.go`.
    #[test]
    fn pod_topology_labels_are_those_of_the_node() {
        let both = r#"{"topology.kubernetes.io/region":"r1","topology.kubernetes.io/zone":"z1"}"#;
        check("", r#"{"spec":{"nodeName":"n1"}}"#, both);
        check("binding", r#"{"target":{"kind":"Node","name":"n1"}}"#, both);
        // They are the node's, whatever the pod says.
        let old = r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"old"}},"spec":{"nodeName":"n1"}}"#;
        check("", old, both);
        check("", r#"{"spec":{"nodeName":"bare"}}"#, "");
        check("", r#"{"spec":{"nodeName":"absent"}}"#, "");
        check("", r#"{"spec":{}}"#, "");
        check("binding", r#"{"target":{"kind":"","name":"n1"}}"#, "");
        check("binding", r#"{"target":{"kind":"Other","name":"n1"}}"#, "");
        check("binding", r#"{"target":{"kind":"Node","name":"absent"}}"#, "");
    }
}
