//! The cases of upstream's `plugin/pkg/admission/resourcequota/admission_test.go`: `testdata/resource_quota.json`, each by the
//! name of its test.

use super::super::tests::Objects;
use super::*;
use machinery_meta::UserInfo;
use machinery_meta::reader::{ReadFuture, ReadObject};
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CASES: &str = include_str!("../../../testdata/resource_quota.json");

#[derive(Deserialize)]
struct Case {
    test: String,
    #[serde(default)]
    quotas: Vec<QuotaCase>,
    #[serde(default)]
    limited: Value,
    requests: Vec<RequestCase>,
    /// By quota, where it changes.
    #[serde(default)]
    used: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct QuotaCase {
    name: String,
    hard: BTreeMap<String, String>,
    used: BTreeMap<String, String>,
    #[serde(default)]
    scopes: Value,
    #[serde(default)]
    scope_selector: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestCase {
    resource: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    object: Value,
    old: Option<Value>,
    #[serde(default)]
    dry_run: bool,
    refused: Option<String>,
    /// The plugin does not look at it.
    #[serde(default)]
    unhandled: bool,
}

/// The quotas of a case; a write raises the revision of one.
struct Quotas(Mutex<Vec<(QuotaCase, u64)>>);

impl Quotas {
    fn objects(&self) -> Objects {
        let quotas = self.0.lock();
        quotas.iter().fold(Objects::default(), |objects, (quota, revision)| {
            let json = json!({"metadata": {"name": quota.name, "namespace": "a", "resourceVersion": revision.to_string()},
                "spec": {"hard": quota.hard, "scopes": quota.scopes, "scopeSelector": quota.scope_selector},
                "status": {"hard": quota.hard, "used": quota.used}});
            objects.with("resourcequotas", "a", &quota.name, &json.to_string())
        })
    }
}

impl ObjectReader for Quotas {
    fn get<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a machinery_meta::ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        unreachable!("quotas are listed")
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        let objects = self.objects();
        Box::pin(async move { objects.list(resource, namespace).await })
    }
}

#[async_trait]
impl UsageWriter for Quotas {
    async fn write(
        &self,
        _: &str,
        name: &str,
        revision: &str,
        used: &ResourceList,
    ) -> Result<(), UsageError> {
        let mut quotas = self.0.lock();
        let quota = quotas.iter_mut().find(|(quota, _)| quota.name == name);
        let (quota, own) = quota.ok_or(UsageError::Conflict)?;
        assert_eq!(own.to_string(), revision);
        *own += 1;
        for (resource, amount) in &mut quota.used {
            *amount = used.get(resource).to_string();
        }
        Ok(())
    }
}

/// Sends a request, and returns what is wrong with the answer.
async fn send(plugin: &ResourceQuota, case: &RequestCase) -> Option<String> {
    let user = UserInfo::named("jane", ["dev"]);
    let request = Request {
        user: &user,
        operation: match case.operation.as_str() {
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => Operation::Create,
        },
        group: "",
        kind: "",
        resource: &case.resource,
        subresource: &case.subresource,
        namespace: "a",
        name: "x",
        dry_run: case.dry_run,
        remarks: &crate::Unheard,
        host: None,
        reinvocation: None,
    };
    if case.unhandled || !plugin.handles(&request) {
        let is_wrong = plugin.handles(&request) || !case.unhandled;
        return is_wrong.then(|| "handled or not".to_owned());
    }
    let tree = |value: &Value| Tree::from_json(&value.to_string()).unwrap();
    let old = case.old.as_ref().map(tree);
    let answer = plugin
        .validate(&request, Some(&tree(&case.object)), old.as_ref())
        .await;
    let refused = answer.err().map(|error| error.to_string());
    (refused != case.refused).then(|| format!("{refused:?} instead of {:?}", case.refused))
}

#[test]
fn quota_admits_what_upstream_admits() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() >= 50);
    let wrong: Vec<String> = cases.into_iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Problems of one case.
fn check(case: Case) -> Vec<String> {
    let quotas = case.quotas.iter().map(|quota| (quota.clone(), 124));
    let store = Arc::new(Quotas(Mutex::new(quotas.collect())));
    let reader: Arc<dyn ObjectReader> = store.clone();
    let written = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": case.limited});
    let configuration = Configuration::parse(Some(&written).filter(|_| !case.limited.is_null())).unwrap();
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let (own, requests) = (store.clone(), case.requests);
    let mut wrong = simulation.run(async move {
        let plugin = ResourceQuota::new(&reader, own, configuration, &runtime);
        let mut wrong = Vec::new();
        for request in &requests {
            wrong.extend(send(&plugin, request).await);
        }
        wrong
    });
    for (quota, _) in &*store.0.lock() {
        let before = case.quotas.iter().find(|before| before.name == quota.name);
        let expected = case.used.get(&quota.name).or(before.map(|before| &before.used));
        if Some(&quota.used) != expected {
            wrong.push(format!(
                "{}: {:?} instead of {expected:?}",
                quota.name, quota.used
            ));
        }
    }
    let named = |problem: String| format!("{}: {problem}", case.test);
    wrong.into_iter().map(named).collect()
}
