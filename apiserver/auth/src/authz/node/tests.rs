use super::*;
use crate::testing::{Objects, block_on};
use machinery_meta::FieldSelector;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Table {
    objects: BTreeMap<String, Vec<Value>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The node; `node0` where absent.
    user: Option<String>,
    verb: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: String,
    #[serde(default)]
    fields: Vec<String>,
    allowed: bool,
    #[serde(default)]
    reason: String,
}

fn group_of(resource: &str) -> &'static str {
    match resource {
        "volumeattachments" => "storage.k8s.io",
        "resourceslices" => "resource.k8s.io",
        "podcertificaterequests" => "certificates.k8s.io",
        _ => "",
    }
}

fn decide(node: &NodeAuthorizer, user: &UserInfo, case: &Case) -> Decision {
    let fields = FieldSelector::parse(&case.fields.join(",")).unwrap();
    let target = ResourceTarget {
        group: &case.group,
        version: "v1",
        resource: &case.resource,
        subresource: &case.subresource,
        namespace: &case.namespace,
        name: &case.object,
        field_selector: Some(&fields),
        label_selector: None,
    };
    block_on(node.authorize(&Attributes {
        user,
        verb: &case.verb,
        target: Target::Resource(target),
    }))
}

#[test]
fn node_authorizer_answers_as_upstream() {
    let text = include_str!("../../../testdata/node_authorizer.json");
    let table: Table = serde_json::from_str(text).unwrap();
    let objects = Objects::default();
    for (resource, list) in &table.objects {
        for object in list {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            objects.put(group_of(resource), resource, namespace, name, &object.to_string());
        }
    }
    let node = NodeAuthorizer::new(Arc::new(objects));
    let mut differing = Vec::new();
    for case in &table.cases {
        let user = UserInfo::node(case.user.as_deref().unwrap_or("node0"));
        let decision = decide(&node, &user, case);
        let reason = decision.reason().to_string();
        if (decision.is_allowed(), &reason) != (case.allowed, &case.reason) {
            differing.push(format!(
                "{}: {decision:?} instead of {:?}",
                case.name, case.reason
            ));
        }
        let stranger = UserInfo::named("system:node:node0", ["x"]);
        assert!(!decide(&node, &stranger, case).is_allowed(), "{}", case.name);
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// A pod on `n1` with a claim, whose volume needs secrets in other namespaces.
fn objects_with_csi_volume() -> Objects {
    let objects = Objects::default();
    let pod = r#"{"metadata":{"name":"p","namespace":"a"},"spec":{"nodeName":"n1","containers":[],
        "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}"#;
    objects.put("", "pods", "a", "p", pod);
    objects.put(
        "",
        "persistentvolumeclaims",
        "a",
        "c",
        r#"{"spec":{"volumeName":"pv"}}"#,
    );
    let volume = r#"{"spec":{"claimRef":{"namespace":"a","name":"c"},"csi":{"driver":"d","volumeHandle":"h",
        "nodeStageSecretRef":{"namespace":"storage","name":"stage"},
        "nodePublishSecretRef":{"namespace":"storage","name":"publish"},
        "controllerExpandSecretRef":{"namespace":"storage","name":"expand"}}}}"#;
    objects.put("", "persistentvolumes", "", "pv", volume);
    objects
}

fn secret(namespace: &str, name: &str) -> Case {
    Case {
        name: name.to_owned(),
        user: None,
        verb: "get".to_owned(),
        group: String::new(),
        resource: "secrets".to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        object: name.to_owned(),
        fields: Vec::new(),
        allowed: true,
        reason: String::new(),
    }
}

#[test]
fn node_authorizer_knows_secrets_of_csi_volumes() {
    let objects = Arc::new(objects_with_csi_volume());
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>);
    let may = |name: &str, namespace: &str, secret_name: &str| {
        decide(&node, &UserInfo::node(name), &secret(namespace, secret_name)).is_allowed()
    };
    assert!(may("n1", "storage", "stage") && may("n1", "storage", "publish"));
    assert!(!may("n1", "storage", "expand") && !may("n1", "a", "stage") && !may("n2", "storage", "stage"));
    // A volume that names a claim which names another volume is not that claim's.
    objects.put(
        "",
        "persistentvolumeclaims",
        "a",
        "c",
        r#"{"spec":{"volumeName":"another"}}"#,
    );
    assert!(!may("n1", "storage", "stage"));
}

#[test]
fn node_authorizer_ignores_mirror_and_unreadable_pods() {
    let objects = Objects::default();
    let mirror = r#"{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}},
        "spec":{"nodeName":"n1","containers":[],"volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#;
    objects.put("", "pods", "a", "m", mirror);
    let broken = r#"{"metadata":{"name":"b"},"spec":{"nodeName":"n1","containers":{},
        "volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#;
    objects.put("", "pods", "a", "b", broken);
    let objects = Arc::new(objects);
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>);
    let may = || decide(&node, &UserInfo::node("n1"), &secret("a", "s")).is_allowed();
    assert!(!may());
    objects.put("", "pods", "a", "b", &broken.replace("{},", "[],"));
    assert!(may());
}
