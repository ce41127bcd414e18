//! Objects every cluster has: the system namespaces, two priority classes.

use super::{ObjectAddress, Startup};
use apiserver_registry::RegistryError;
use futures::future::{BoxFuture, try_join_all};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

pub(super) fn namespaces(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let create = NAMESPACES.map(|name| async move {
            let json = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
            facts
                .create(
                    ObjectAddress {
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
            let address = ObjectAddress {
                group: "scheduling.k8s.io",
                plural: "priorityclasses",
                namespace: "",
                name,
            };
            facts.create(address, json).await
        });
        try_join_all(create).await.map(|_| ())
    })
}
