//! The world that tenants meet: every kind on two sides, and users with rights on one of them.

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::run::{Ask, Sender};
use super::{OTHER, OWN, custom};
use crate::differential::{case, template::Variables};
use crate::facts::{Facts, Resource};

/// An object of a kind, with placeholders for its side.
#[derive(Debug, Clone)]
pub struct Sample {
    pub resource: Resource,
    pub(super) object: Value,
}

/// An object on one side.
#[derive(Debug, Clone)]
pub struct Placed {
    pub collection: String,
    pub name: String,
    pub object: Value,
}

impl Sample {
    /// The object as it stands on a side; `index` makes names that are addresses differ.
    #[must_use]
    pub fn on(&self, side: &str, index: usize) -> Placed {
        let mut variables = Variables::default();
        variables.set("ns", side.into());
        variables.set("index", index.into());
        let mut object = variables.value(&self.object);
        if self.resource.resource == "namespaces" {
            object["metadata"]["name"] = side.into();
        }
        object["metadata"]["labels"] = json!({"tenants": "yes"});
        make_harmless(&self.resource.resource, side, &mut object);
        Placed {
            collection: self.resource.collection(side),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            object,
        }
    }
}

/// A stored object of these kinds decides about others: here about none, so that a server that does not enforce the kind yet
/// answers alike.
fn make_harmless(plural: &str, side: &str, object: &mut Value) {
    match plural {
        // The group of the least CustomResourceDefinition is registered by that.
        "apiservices" => {
            let group = format!("{side}.remote.example.com");
            object["metadata"]["name"] = format!("v1.{group}").into();
            object["spec"]["group"] = group.into();
        }
        "limitranges" => object["spec"] = json!({"limits": []}),
        "resourcequotas" => object["spec"] = json!({"hard": {"count/boats.nowhere.example.com": "5"}}),
        _ => {}
    }
}

/// The least object of every kind that has one, in the order of the facts, then of the custom kinds. One of another version of
/// the kind does as well: the least has no field that only one of them knows.
pub fn samples(folder: &Path, facts: &Facts) -> Result<Vec<Sample>> {
    let least = case::least_objects(folder)?;
    let mut samples = Vec::new();
    for resource in facts.resources() {
        if let (Some(object), true) = (least_of(&least, resource), resource.has_verb("create")) {
            samples.push(Sample {
                resource: resource.clone(),
                object,
            });
        }
    }
    samples.extend(custom::samples());
    Ok(samples)
}

fn least_of(least: &[Value], resource: &Resource) -> Option<Value> {
    let of_kind = || {
        least
            .iter()
            .filter(|object| object["kind"] == resource.kind.as_str())
    };
    let version = resource.api_version();
    if let Some(own) = of_kind().find(|object| object["apiVersion"] == version.as_str()) {
        return Some(own.clone());
    }
    let group = format!("{}/", resource.group);
    let of_group = |object: &&Value| {
        object["apiVersion"]
            .as_str()
            .is_some_and(|own| own.starts_with(&group))
    };
    let mut other = of_kind().find(of_group)?.clone();
    other["apiVersion"] = version.into();
    Some(other)
}

/// Makes everything, as the administrator; what is there already stays.
pub async fn make(sender: &Sender, samples: &[Sample]) -> Result<()> {
    for definition in custom::definitions() {
        create(sender, &definition).await?;
    }
    custom::served(sender).await?;
    for (index, side) in [OWN, OTHER].into_iter().enumerate() {
        for placed in first(side) {
            create(sender, &placed).await?;
        }
        for sample in samples {
            create(sender, &sample.on(side, index + 1)).await?;
        }
        for placed in used_by_a_node(side) {
            create(sender, &placed).await?;
        }
    }
    for placed in rights() {
        create(sender, &placed).await?;
    }
    Ok(())
}

pub(super) fn placed(collection: &str, object: Value) -> Placed {
    Placed {
        collection: collection.to_owned(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        object,
    }
}

/// The namespace, and the account that pods need.
fn first(side: &str) -> Vec<Placed> {
    vec![
        placed(
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": side, "labels": {"tenants": "yes"}}}),
        ),
        placed(
            &format!("/api/v1/namespaces/{side}/serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        ),
    ]
}

/// A pod bound to the side's node, and what it uses.
fn used_by_a_node(side: &str) -> Vec<Placed> {
    let core = |plural: &str| format!("/api/v1/namespaces/{side}/{plural}");
    let labels = json!({"tenants": "yes"});
    let meta = |name: &str| json!({"name": name, "labels": labels});
    vec![
        placed(
            &core("secrets"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("used")}),
        ),
        placed(
            &core("configmaps"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("used")}),
        ),
        placed(
            &core("serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("used")}),
        ),
        placed(
            &core("persistentvolumeclaims"),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("used"),
                   "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        placed(
            &core("pods"),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("bound"), "spec": {
                "nodeName": format!("one-{side}"),
                "serviceAccountName": "used",
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "busybox"}],
                "volumes": [
                    {"name": "s", "secret": {"secretName": "used"}},
                    {"name": "c", "configMap": {"name": "used"}},
                    {"name": "p", "persistentVolumeClaim": {"claimName": "used"}}]}}),
        ),
    ]
}

/// Roles and bindings: `view`, `edit` and everything in one namespace; `roles` writes roles and bindings everywhere.
/// The roles that `view` and `edit` gather are bound, for without its controller a server does not fill the gathering
/// ones.
fn rights() -> Vec<Placed> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    const VIEW: &str = "system:aggregate-to-view";
    const EDIT: &str = "system:aggregate-to-edit";
    let role = |kind: &str, name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules});
    let binding = |kind: &str, user: &str, role_kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
               "metadata": {"name": format!("{role}-to-{user}")},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    };
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let writes_roles = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]);
    let own = format!("{RBAC}/namespaces/{OWN}");
    let bindings = format!("{own}/rolebindings");
    vec![
        placed(&format!("{own}/roles"), role("Role", "everything", everything)),
        placed(
            &format!("{RBAC}/clusterroles"),
            role("ClusterRole", "writes-roles", writes_roles),
        ),
        placed(&bindings, binding("RoleBinding", "view", "ClusterRole", VIEW)),
        placed(&bindings, binding("RoleBinding", "edit", "ClusterRole", VIEW)),
        placed(&bindings, binding("RoleBinding", "edit", "ClusterRole", EDIT)),
        placed(&bindings, binding("RoleBinding", "all", "Role", "everything")),
        placed(
            &format!("{RBAC}/clusterrolebindings"),
            binding("ClusterRoleBinding", "roles", "ClusterRole", "writes-roles"),
        ),
    ]
}

async fn create(sender: &Sender, placed: &Placed) -> Result<()> {
    let ask = Ask::with_body("POST", &placed.collection, "application/json", &placed.object);
    let answer = sender.send(None, &ask).await?;
    // The same name may be there: one object of `events` is reached as two kinds.
    if !answer.status.is_success() && answer.status != 409 {
        bail!(
            "creating {} in {}: {}",
            placed.name,
            placed.collection,
            String::from_utf8_lossy(&answer.body)
        );
    }
    Ok(())
}
