//! Objects every cluster has: the system namespaces, two priority classes, the flow-control defaults.

use super::{Place, Startup};
use apiserver_registry::RegistryError;
use futures::future::{BoxFuture, try_join_all};
use serde::Deserialize;

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

pub(super) fn namespaces(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let create = NAMESPACES.map(|name| async move {
            let json = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
            facts
                .create(
                    Place {
                        group: "",
                        plural: "namespaces",
                        namespace: "",
                        name,
                    },
                    &json,
                )
                .await
        });
        try_join_all(create).await.map(|_| ())
    })
}

const PRIORITY_CLASSES: [(&str, &str); 2] = [
    (
        "system-node-critical",
        r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"system-node-critical"},"value":2000001000,"description":"Used for system critical pods that must not be moved from their current node.","preemptionPolicy":"PreemptLowerPriority"}"#,
    ),
    (
        "system-cluster-critical",
        r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"system-cluster-critical"},"value":2000000000,"description":"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.","preemptionPolicy":"PreemptLowerPriority"}"#,
    ),
];

pub(super) fn priority_classes(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let create = PRIORITY_CLASSES.map(|(name, json)| async move {
            let place = Place {
                group: "scheduling.k8s.io",
                plural: "priorityclasses",
                namespace: "",
                name,
            };
            facts.create(place, json).await
        });
        try_join_all(create).await.map(|_| ())
    })
}

/// Read from a fresh upstream server; objects with empty lines between them.
const FLOW_CONTROL: &str = include_str!("flow_control.jsons");

#[derive(Deserialize)]
struct Head<'a> {
    kind: &'a str,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    name: &'a str,
}

/// They are stored and shown; the filter that obeys them is to come.
pub(super) fn flow_control(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let texts = FLOW_CONTROL
            .split("\n\n")
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let create = texts.map(|json| async move {
            let unreadable = |error: serde_json::Error| RegistryError::Internal(error.to_string());
            let Head {
                kind,
                metadata: Metadata { name },
            } = serde_json::from_str(json).map_err(unreadable)?;
            let plural = if kind == "FlowSchema" {
                "flowschemas"
            } else {
                "prioritylevelconfigurations"
            };
            let place = Place {
                group: "flowcontrol.apiserver.k8s.io",
                plural,
                namespace: "",
                name,
            };
            facts.create(place, json).await
        });
        try_join_all(create).await.map(|_| ())
    })
}
