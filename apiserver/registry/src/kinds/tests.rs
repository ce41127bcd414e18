//! The list of kinds against the generated table, and what kinds say of themselves.

use super::*;
use machinery_schema::{Strictness, Tree, decode_json};
use serde_json::{Value, json};

#[track_caller]
fn named(group: &str, plural: &str) -> &'static Kind {
    find(group, plural).unwrap_or_else(|| panic!("{group}/{plural} is no kind"))
}

/// A name that is misspelt in a folder would be a kind without the rules that were written for it.
#[test]
fn kinds_of_the_list_are_those_of_the_table() {
    let table = machinery_api::table();
    let mut served: Vec<(&str, &str)> = table
        .kinds()
        .iter()
        .map(|kind| (kind.gvk.group.as_str(), kind.plural.as_str()))
        .collect();
    served.sort_unstable();
    served.dedup();
    let mut listed: Vec<(&str, &str)> = ALL.iter().map(|kind| (kind.group, kind.plural)).collect();
    listed.sort_unstable();
    assert_eq!(listed, served, "the list of kinds, and the table");
}

fn tree(group: &str, kind: &str, object: &Value) -> Tree {
    let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
    decode_json(schema, ty, object.to_string().as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree
}

/// The paths of fields that are warned of.
#[track_caller]
fn check_fields(group: &str, kind: &str, plural: &str, object: Value, expected: &[&str]) {
    let object = tree(group, kind, &object);
    let told = named(group, plural).field_warnings(object.root(), None);
    let paths: Vec<&str> = told
        .iter()
        .map(|text| text.split(": stored").next().unwrap())
        .collect();
    assert_eq!(paths, expected);
    let again = named(group, plural).field_warnings(object.root(), Some(object.root()));
    assert!(again.is_empty(), "fields that were there before: {again:?}");
}

#[test]
fn warnings_name_fields_without_effect() {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/warn": "privileged"});
    let namespace = json!({"metadata": {"labels": labels}});
    let enforce = "metadata.labels[pod-security.kubernetes.io/enforce]";
    check_fields("", "Namespace", "namespaces", namespace, &[enforce]);
    let service = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "trafficDistribution": "PreferSameZone",
        "healthCheckNodePort": 30_123}});
    let distribution = "spec.trafficDistribution";
    check_fields("", "Service", "services", service, &[distribution]);
    check_fields(
        "",
        "Service",
        "services",
        json!({"spec": {"type": "ClusterIP"}}),
        &[],
    );
    let class = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
    let name = "ingressclass.kubernetes.io/is-default-class";
    let path = format!("metadata.annotations[{name}]");
    check_fields(
        "networking.k8s.io",
        "IngressClass",
        "ingressclasses",
        class(name, "true"),
        &[&path],
    );
    check_fields(
        "networking.k8s.io",
        "IngressClass",
        "ingressclasses",
        class(name, "false"),
        &[],
    );
    let name = "storageclass.kubernetes.io/is-default-class";
    let path = format!("metadata.annotations[{name}]");
    check_fields(
        "storage.k8s.io",
        "StorageClass",
        "storageclasses",
        class(name, "true"),
        &[&path],
    );
    let account_token = json!({"type": "kubernetes.io/service-account-token"});
    check_fields("", "Secret", "secrets", account_token, &[]);
}

#[track_caller]
fn check_refusal(group: &str, kind: &str, plural: &str, object: &Value, expected: Option<&str>) {
    let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
    let decoded = decode_json(schema, ty, object.to_string().as_bytes(), Strictness::Ignore).unwrap();
    let found = named(group, plural).refusal(decoded.tree.root());
    let found = found
        .as_deref()
        .map(|text| text.split(" by this server").next().unwrap());
    assert_eq!(found, expected, "{object}");
}

#[test]
fn refusal_of_webhooks_goes_by_their_failure_policy() {
    let webhooks = |policies: &[Value]| {
        let of = |policy: &Value| json!({"name": "a.b.c", "failurePolicy": policy});
        json!({"webhooks": policies.iter().map(of).collect::<Vec<_>>()})
    };
    for (kind, plural) in [
        (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        ),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ] {
        let check = |object: &Value, expected: Option<&str>| {
            check_refusal("admissionregistration.k8s.io", kind, plural, object, expected)
        };
        check(&json!({}), None);
        check(&webhooks(&[json!("Ignore")]), None);
        let second = "webhooks[1].failurePolicy: Fail: admission webhooks are not called";
        check(&webhooks(&[json!("Ignore"), json!("Fail")]), Some(second));
        check(&webhooks(&[json!("Ignore"), Value::Null]), Some(second));
    }
}

#[test]
fn refusal_of_policies_goes_by_what_they_deny() {
    let group = "admissionregistration.k8s.io";
    let binding = |actions: Value, expected| {
        let (kind, plural) = (
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        );
        check_refusal(
            group,
            kind,
            plural,
            &json!({"spec": {"validationActions": actions}}),
            expected,
        );
    };
    binding(json!(["Warn", "Audit"]), None);
    let denies = "spec.validationActions: Deny: admission policies are not evaluated";
    binding(json!(["Audit", "Deny"]), Some(denies));
    let policy = |spec: Value, expected| {
        let (kind, plural) = ("MutatingAdmissionPolicy", "mutatingadmissionpolicies");
        check_refusal(group, kind, plural, &json!({"spec": spec}), expected);
    };
    policy(json!({"failurePolicy": "Ignore"}), None);
    policy(
        json!({}),
        Some("spec.failurePolicy: Fail: admission policies are not evaluated"),
    );
}

#[test]
fn refusal_of_network_policies_goes_by_what_they_leave_out() {
    let check = |spec: Value, expected| {
        let object = json!({ "spec": spec });
        check_refusal(
            "networking.k8s.io",
            "NetworkPolicy",
            "networkpolicies",
            &object,
            expected,
        );
    };
    let (into, out) = (
        "spec.policyTypes: Ingress: traffic is not filtered",
        "spec.policyTypes: Egress: traffic is not filtered",
    );
    check(json!({"policyTypes": ["Ingress"]}), Some(into));
    check(json!({}), Some(into));
    check(json!({"policyTypes": ["Ingress"], "ingress": [{}]}), None);
    check(
        json!({"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}),
        Some(into),
    );
    check(
        json!({"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}, {}]}),
        None,
    );
    check(json!({"policyTypes": ["Egress"], "egress": [{}]}), None);
    check(json!({"policyTypes": ["Egress"]}), Some(out));
    check(
        json!({"ingress": [{}], "egress": [{"to": [{"podSelector": {}}]}]}),
        Some(out),
    );
}
