//! Rights of the users of groups `rights`.

use serde_json::{Value, json};

/// Cluster roles that are whole without the controller that aggregates roles.
const BINDINGS: [(&str, &str); 4] = [
    ("tenant", "system:aggregate-to-admin"),
    ("tenant", "system:aggregate-to-edit"),
    ("tenant", "system:aggregate-to-view"),
    ("viewer", "system:aggregate-to-view"),
];

/// Bindings in the namespace of a group `rights`.
pub(super) fn bindings() -> Vec<Value> {
    let binding = |(user, role): &(&str, &str)| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{user}-{}", role.replace(':', "-"))},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
    };
    BINDINGS.iter().map(binding).collect()
}
