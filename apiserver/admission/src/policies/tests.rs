use super::{Binding, MutatingPolicies, MutatingPolicy, ParamSource, Policies, PolicyObserver, PolicyRun};
use super::{ValidatingPolicies, ValidatingPolicy, hooks};
use crate::webhooks::tests::{OneNamespace, deployments, request};
use crate::{AdmissionError, Host, Plugin};
use async_trait::async_trait;
use machinery_meta::GroupVersionKind;
use machinery_meta::UserInfo;
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// No parameters, and no count of runs.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl ParamSource for Nobody {
    fn is_namespaced(&self, _: &GroupVersionKind) -> Option<bool> {
        None
    }

    async fn get(&self, _: &GroupVersionKind, _: &str, _: &str) -> Result<Option<Tree>, AdmissionError> {
        Ok(None)
    }

    async fn list(
        &self,
        _: &GroupVersionKind,
        _: &str,
        _: &LabelSelector,
        _: usize,
        _: &dyn Host,
    ) -> Result<Vec<Tree>, AdmissionError> {
        Ok(Vec::new())
    }
}

impl PolicyObserver for Nobody {
    fn validated(&self, _: PolicyRun<'_>, _: &'static str) {}

    fn mutated(&self, _: PolicyRun<'_>) {}
}

/// Policies of a server that has none.
pub(crate) fn none(reader: &Arc<dyn ObjectReader>) -> Arc<Policies> {
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    Policies::new(Arc::clone(reader), Arc::new(Nobody), runtime, Arc::new(Nobody))
}

/// Parameters that no request has a turn to read.
#[derive(Debug)]
struct Crowded;

#[async_trait]
impl ParamSource for Crowded {
    fn is_namespaced(&self, _: &GroupVersionKind) -> Option<bool> {
        Some(false)
    }

    async fn get(&self, _: &GroupVersionKind, _: &str, _: &str) -> Result<Option<Tree>, AdmissionError> {
        Err(AdmissionError::Busy)
    }

    async fn list(
        &self,
        _: &GroupVersionKind,
        _: &str,
        _: &LabelSelector,
        _: usize,
        _: &dyn Host,
    ) -> Result<Vec<Tree>, AdmissionError> {
        Err(AdmissionError::Busy)
    }
}

/// A policy is not passed by since its parameters could not be read for now.
#[test]
fn policy_without_a_turn_for_its_parameters_ends_the_request() {
    const RULES: &str = r#"{"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
        "namespaceSelector": {}, "objectSelector": {}}"#;
    let of = |members: &str| {
        format!(
            r#"{{"spec": {{"paramKind": {{"apiVersion": "v1", "kind": "ConfigMap"}}, "failurePolicy": "Ignore",
                "matchConstraints": {RULES}, {members}}}}}"#
        )
    };
    let binding =
        br#"{"spec": {"policyName": "a", "paramRef": {"name": "own", "parameterNotFoundAction": "Deny"},
        "validationActions": ["Deny"]}}"#;
    let bindings = BTreeMap::from([("a".to_owned(), Arc::new(Binding::compile("a", binding).unwrap()))]);
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    let policies = Policies::new(
        Arc::new(OneNamespace),
        Arc::new(Crowded),
        runtime,
        Arc::new(Nobody),
    );
    let validating = of(r#""validations": [{"expression": "false"}]"#);
    let validating = ValidatingPolicy::compile("a", validating.as_bytes()).unwrap();
    policies.set_validating(hooks(&[("a".to_owned(), Arc::new(validating))].into(), &bindings));
    let mutating = of(r#""mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]"#);
    let mutating = MutatingPolicy::compile("a", mutating.as_bytes()).unwrap();
    policies.set_mutating(hooks(&[("a".to_owned(), Arc::new(mutating))].into(), &bindings));
    let (user, host) = (UserInfo::named("anna", ["staff"]), deployments(""));
    let request = request(&user, &host, "ns");
    let mut object = Tree::from_json("{}").unwrap();
    let (validating, mutating) = (
        ValidatingPolicies::new(&policies),
        MutatingPolicies::new(&policies),
    );
    let checked = futures::executor::block_on(validating.validate(&request, Some(&object), None));
    assert!(matches!(checked, Err(AdmissionError::Busy)), "{checked:?}");
    let changed = futures::executor::block_on(mutating.mutate(&request, &mut object, None));
    assert!(matches!(changed, Err(AdmissionError::Busy)), "{changed:?}");
}
