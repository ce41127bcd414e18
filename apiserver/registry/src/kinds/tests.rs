//! The list of kinds against the generated table, and what kinds say of themselves.

use super::*;
use machinery_schema::{Additions, Strictness, Tree, decode_json};
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
    // Claims and ingresses without a class get the default one.
    for (group, kind, plural, name) in [
        (
            "networking.k8s.io",
            "IngressClass",
            "ingressclasses",
            "ingressclass",
        ),
        ("storage.k8s.io", "StorageClass", "storageclasses", "storageclass"),
    ] {
        let name = format!("{name}.kubernetes.io/is-default-class");
        let class = json!({"metadata": {"annotations": {name: "true"}}});
        check_fields(group, kind, plural, class, &[]);
    }
    let storage_class = |provisioner: &str, grows: bool| json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": provisioner, "allowVolumeExpansion": grows});
    for (class, expected) in [
        (storage_class("knarr/local-path", false), &[][..]),
        (storage_class("knarr/local-path", true), &["allowVolumeExpansion"]),
        (storage_class("kubernetes.io/no-provisioner", false), &[]),
        (storage_class("kubernetes.io/aws-ebs", true), &["provisioner"]),
        // The user's own.
        (storage_class("ebs.csi.aws.com", true), &[]),
    ] {
        check_fields(
            "storage.k8s.io",
            "StorageClass",
            "storageclasses",
            class,
            expected,
        );
    }
    let volume = |source: &str| json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], source: {"path": "/"}}});
    for (source, expected) in [
        ("hostPath", &[][..]),
        ("local", &[]),
        ("csi", &[]),
        ("nfs", &["spec.nfs"]),
    ] {
        check_fields(
            "",
            "PersistentVolume",
            "persistentvolumes",
            volume(source),
            expected,
        );
    }
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

#[track_caller]
fn check_warnings((group, plural): (&str, &str), object: Value, old: Option<Value>, expected: &[&str]) {
    let tree = |value: &Value| Tree::from_json(&value.to_string()).unwrap();
    let (object, old) = (tree(&object), old.as_ref().map(tree));
    let warnings = named(group, plural).hooks.warnings.expect("the kind warns");
    let found = warnings(object.root(), old.as_ref().map(Tree::root));
    let begins = |(found, expected): (&String, &&str)| found.starts_with(expected);
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(begins),
        "{found:?}"
    );
}

#[test]
fn workloads_are_warned_of_names_templates_and_histories() {
    let name = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]";
    check_warnings(
        ("apps", "deployments"),
        json!({"metadata": {"name": "a.b"}}),
        None,
        &[name],
    );
    check_warnings(
        ("apps", "daemonsets"),
        json!({"metadata": {"name": "a.b"}}),
        None,
        &[],
    );
    let pods = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": []}});
    let job = json!({"metadata": {"name": "a.b"}, "spec": {"jobTemplate": {"spec": {"template": pods}}}});
    let selector =
        "spec.jobTemplate.spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14";
    check_warnings(("batch", "cronjobs"), job.clone(), None, &[name, selector]);
    check_warnings(("batch", "cronjobs"), job.clone(), Some(job), &[]);
    let set = json!({"metadata": {"name": "a"}, "spec": {"revisionHistoryLimit": -1}});
    let history = "spec.revisionHistoryLimit: a negative value retains all";
    check_warnings(("apps", "statefulsets"), set.clone(), Some(set), &[history]);
}

#[track_caller]
fn check_default(group: &str, kind: &str, plural: &str, input: &str, path: &[&str], expected: &str) {
    let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
    let mut tree = decode_json(schema, ty, input.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    let lines = named(group, plural).compiled_defaults(schema, ty);
    named(group, plural).set_defaults(Some(&lines), &mut tree);
    assert_eq!(
        tree.at(path).map(|found| found.to_json()).as_deref(),
        Some(expected),
        "{}",
        tree.root().to_json()
    );
}

#[test]
fn defaults_drop_annotations_of_init_containers() {
    let metadata = r#"{"annotations":{"a":"b","pod.beta.kubernetes.io/init-containers":"[]",
        "pod.alpha.kubernetes.io/init-container-statuses":"[]"}}"#;
    let pod = format!(r#"{{"metadata":{metadata},"spec":{{"containers":[]}}}}"#);
    let kept = r#"{"a":"b"}"#;
    check_default("", "Pod", "pods", &pod, &["metadata", "annotations"], kept);
    let set = format!(r#"{{"metadata":{metadata},"spec":{{"template":{pod}}}}}"#);
    let own = &["spec", "template", "metadata", "annotations"];
    check_default("apps", "ReplicaSet", "replicasets", &set, own, kept);
    let name = "pod.beta.kubernetes.io/init-containers";
    let own = &["metadata", "annotations", name];
    check_default("apps", "ReplicaSet", "replicasets", &set, own, r#""[]""#);
}

#[test]
fn defaults_depend_on_other_fields() {
    let deployment = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}}"#;
    let path = &["spec", "strategy"];
    check_default(
        "apps",
        "Deployment",
        "deployments",
        deployment,
        path,
        r#"{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}}"#,
    );
    check_default(
        "apps",
        "Deployment",
        "deployments",
        deployment,
        &["spec", "template", "spec", "restartPolicy"],
        "\"Always\"",
    );
    check_default("batch", "Job", "jobs", deployment, &["spec", "completions"], "1");
    check_default(
        "",
        "Pod",
        "pods",
        r#"{"spec":{"containers":[{"name":"a","image":"b:1","livenessProbe":{"httpGet":{"port":1}}}]}}"#,
        &["spec", "containers"],
        r#"[{"name":"a","image":"b:1","resources":{},"livenessProbe":{"httpGet":{"path":"/","port":1,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}]"#,
    );
}

#[test]
fn defaults_every_line_resolves_in_some_version() {
    let table = machinery_api::table();
    for kind in ALL {
        let versions = table.kinds().iter();
        let versions: Vec<_> = versions
            .filter(|version| version.gvk.group == kind.group && version.plural == kind.plural)
            .collect();
        for line in kind.all_default_lines() {
            let known = |ty| Additions::compile(table.schema(), ty, [line.as_str()]).is_ok();
            assert!(
                versions.iter().any(|version| known(version.ty)),
                "{}: {line}",
                kind.plural
            );
        }
    }
}
