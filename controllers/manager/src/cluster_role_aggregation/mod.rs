//! Fills the rules of ClusterRoles that have an `aggregationRule` from the roles it selects.
//!
//! Watches: ClusterRoles; a change of any wakes every aggregated one. Rules are joined in the order of the roles'
//! names, each once, as upstream joins them.

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::{AggregationRule, ClusterRole};
use machinery_client::{ApiResource, Client, ClientError, Informer, Object, Patch, Projection};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "clusterrole-aggregation-controller",
    queue: "ClusterRoleAggregator",
    service_account: "clusterrole-aggregation-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let roles: Informer<RoleView> = context.informers.of::<ClusterRole, _>();
    let all = roles.clone();
    let controller = ROW.controller(&context.runtime).watches(&roles, move |change| {
        let mut keys: Vec<ObjectKey> = change.new.iter().map(|role| role.key().clone()).collect();
        all.for_each(|role| {
            if !role.selectors.is_empty() {
                keys.push(role.key().clone());
            }
        });
        keys
    });
    controller.run(Aggregation {
        client: context.client(ROW.service_account),
        roles,
    })
}

#[derive(Debug)]
pub(crate) struct RoleView {
    rules: Vec<Value>,
    selectors: Vec<LabelSelector>,
}

impl Projection for RoleView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Role {
            #[serde(default)]
            rules: Option<Vec<Value>>,
            #[serde(default)]
            aggregation_rule: Option<AggregationRule>,
        }
        let role: Role = machinery_client::json::from_slice(json)?;
        let selectors = role
            .aggregation_rule
            .and_then(|rule| rule.cluster_role_selectors)
            .unwrap_or_default();
        let compiled = selectors
            .iter()
            .filter_map(|own| machinery_semantics::selectors::from_api(Some(own)).ok()?);
        Ok(Self {
            rules: role.rules.unwrap_or_default(),
            selectors: compiled.collect(),
        })
    }
}

struct Aggregation {
    client: Client,
    roles: Informer<RoleView>,
}

impl Reconciler for Aggregation {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(role) = self.roles.get(key).filter(|role| !role.selectors.is_empty()) else {
                return Ok(Outcome::Done);
            };
            let rules = joined(&role, &self.roles.list());
            if rules == role.rules {
                return Ok(Outcome::Done);
            }
            let filled = fill(&self.client, key, rules).await;
            filled
                .map(|_| Outcome::Done)
                .map_err(ReconcileError::doing("filling an aggregated role"))
        })
    }
}

/// Applies the rules as the controller's own, whichever manager had them, as upstream does; no rules are no field.
fn fill(
    client: &Client,
    key: &ObjectKey,
    rules: Vec<Value>,
) -> BoxFuture<'static, Result<Bytes, ClientError>> {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": key.name},
    });
    if !rules.is_empty() {
        role["rules"] = Value::Array(rules);
    }
    let patch = Patch::Apply {
        manager: ROW.name.to_owned(),
        force: true,
    };
    client.patch(&ApiResource::of::<ClusterRole>(), key, "", &patch, &role)
}

/// The rules of every other role that one of the selectors matches; `all` is in the order of names.
fn joined(role: &Object<RoleView>, all: &[Arc<Object<RoleView>>]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in &role.selectors {
        for other in all
            .iter()
            .filter(|other| other.name() != role.name() && selector.matches(&other.header))
        {
            for rule in &other.rules {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::client::Body;
    use machinery_client::object::object_of;
    use machinery_runtime::Runtime;
    use std::convert::Infallible;

    #[test]
    fn rules_are_joined_in_order_and_once() {
        let role = |name: &str, verbs: &[&str]| {
            let json = json!({"metadata": {"name": name, "labels": {"into": "edit"}},
                "rules": verbs.iter().map(|verb| json!({"verbs": [verb]})).collect::<Vec<_>>()});
            Arc::new(object_of::<RoleView>(&json.to_string()).unwrap())
        };
        let edit = json!({"metadata": {"name": "edit"}, "rules": null,
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"into": "edit"}}]}});
        let edit = Arc::new(object_of::<RoleView>(&edit.to_string()).unwrap());
        let all = [
            role("a", &["get", "list"]),
            role("b", &["list", "watch"]),
            edit.clone(),
        ];
        let verbs: Vec<_> = joined(&edit, &all)
            .iter()
            .map(|rule| rule["verbs"][0].clone())
            .collect();
        assert_eq!(verbs, ["get", "list", "watch"]);
    }

    #[tokio::test]
    async fn rules_are_applied_as_the_controllers_own() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let (head, body) = request.into_parts();
            let sent = body.collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            let told = json!({"method": head.method.as_str(), "to": head.uri.to_string(),
                "as": head.headers["content-type"].to_str().unwrap(), "sent": sent});
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(told.to_string()))))
        });
        let client = Client::in_process(service, Runtime::real());
        let key = ObjectKey::new("", "edit");
        for rules in [json!([{"verbs": ["get"]}]), json!([])] {
            let list = rules.as_array().unwrap().clone();
            let told: Value = serde_json::from_slice(&fill(&client, &key, list).await.unwrap()).unwrap();
            assert_eq!(told["method"], "PATCH");
            assert_eq!(told["as"], "application/apply-patch+yaml");
            assert_eq!(
                told["to"],
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit?fieldManager=clusterrole-aggregation-controller&force=true"
            );
            let mut expected = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "edit"}});
            if rules != json!([]) {
                expected["rules"] = rules;
            }
            assert_eq!(told["sent"], expected);
        }
    }
}
