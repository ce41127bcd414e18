use super::*;
use crate::testing::{Objects, block_on};
use machinery_api::pod::PodView;
use machinery_fuzz::Random;
use machinery_meta::{FieldSelector, GroupResource, ObjectHeader, ObjectKey, Revision};
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
        asker: None,
        user,
        verb: &case.verb,
        target: AttributesTarget::Resource(target),
    }))
    .unwrap()
}

/// Gives an index everything that there is.
fn feed(index: &NodeIndex, objects: &Objects) {
    let list = |resource| block_on(objects.list(&GroupResource::new("", resource), "")).unwrap();
    let pods = list("pods");
    index.replace_pods(pods.iter().map(|pod| (&*pod.header, pod.revision)));
    let volumes = list("persistentvolumes").into_iter();
    index.replace_volumes(volumes.map(|own| (own.header.key.clone(), own.revision, own.json)));
}

/// Upstream's cases, by the index and by an index that knows nothing yet.
#[test]
fn node_authorizer_answers_as_upstream() {
    for is_fed in [true, false] {
        answers_as_upstream(is_fed);
    }
}

fn answers_as_upstream(is_fed: bool) {
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
    let index = Arc::<NodeIndex>::default();
    if is_fed {
        feed(&index, &objects);
    }
    let node = NodeAuthorizer::new(Arc::new(objects), index);
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
    let index = Arc::<NodeIndex>::default();
    feed(&index, &objects);
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, index);
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
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, Arc::default());
    let may = || decide(&node, &UserInfo::node("n1"), &secret("a", "s")).is_allowed();
    assert!(!may());
    objects.put("", "pods", "a", "b", &broken.replace("{},", "[],"));
    assert!(may());
}

const NODES: [&str; 3] = ["n1", "n2", ""];
const NAMESPACES: [&str; 2] = ["a", "b"];

/// A pod that names a few things, some of them twice; now and then a mirror of one.
fn random_pod(random: &mut Random, namespace: &str, name: &str) -> String {
    let mut draw = |kind: &str| format!("{kind}{}", random.below(3));
    let volumes = serde_json::json!([
        {"name": "1", "secret": {"secretName": draw("s")}},
        {"name": "2", "configMap": {"name": draw("c")}},
        {"name": "3", "persistentVolumeClaim": {"claimName": draw("v")}},
        {"name": "4", "projected": {"sources": [{"secret": {"name": draw("s")}}, {"configMap": {"name": draw("c")}}]}},
    ]);
    let (account, claim) = (draw("t"), draw("r"));
    let annotations = match random.below(8) {
        0 => serde_json::json!({"kubernetes.io/config.mirror": "x"}),
        _ => serde_json::json!({}),
    };
    let kept = volumes.as_array().unwrap().iter().filter(|_| random.below(2) > 0);
    let kept: Vec<&Value> = kept.collect();
    let spec = serde_json::json!({
        "nodeName": NODES[random.below(3)], "serviceAccountName": account, "containers": [], "volumes": kept,
        "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
    });
    let status = serde_json::json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": claim}]});
    let meta = serde_json::json!({"name": name, "namespace": namespace, "annotations": annotations});
    serde_json::json!({"metadata": meta, "spec": spec, "status": status}).to_string()
}

/// The model: every pod is read for every question.
fn is_needed_by_a_walk(objects: &Objects, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let pods = block_on(objects.list(&GroupResource::new("", "pods"), namespace)).unwrap();
    pods.iter().any(|pod| {
        let tree = machinery_api::read_stored("", "v1", "Pod", &pod.json).unwrap();
        let pod = PodView::new(tree.root());
        let is_own = pod.node_name() == node && !pod.is_mirror();
        is_own
            && match resource {
                "secrets" => pod.secrets().any(|own| own == name),
                "configmaps" => pod.config_maps().any(|own| own == name),
                "persistentvolumeclaims" => pod.volume_claims().any(|own| own == name),
                "resourceclaims" => pod.resource_claims().any(|own| own == name),
                _ => pod.service_account() == name,
            }
    })
}

/// The index gets new pods late, everything else at once.
#[test]
fn node_index_answers_as_a_walk_over_all_pods() {
    const KINDS: [(&str, &str, &str); 5] = [
        ("", "secrets", "s"),
        ("", "configmaps", "c"),
        ("", "persistentvolumeclaims", "v"),
        ("resource.k8s.io", "resourceclaims", "r"),
        ("", "serviceaccounts", "t"),
    ];
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (objects, index) = (Arc::new(Objects::default()), Arc::<NodeIndex>::default());
        let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, Arc::clone(&index));
        let pods = GroupResource::new("", "pods");
        for step in 0..400 {
            let (namespace, name) = (NAMESPACES[random.below(2)], format!("p{}", random.below(6)));
            let key = ObjectKey::new(namespace, name.as_str());
            if random.below(4) == 0 {
                objects.remove("", "pods", namespace, &name);
                index.remove_pod(&key);
            } else {
                let is_new = block_on(objects.get(&pods, &key)).unwrap().is_none();
                objects.put(
                    "",
                    "pods",
                    namespace,
                    &name,
                    &random_pod(&mut random, namespace, &name),
                );
                let pod = block_on(objects.get(&pods, &key)).unwrap().unwrap();
                if !is_new || random.below(2) == 0 {
                    index.put_pod(&pod.header, pod.revision);
                }
            }
            if random.below(60) == 0 {
                feed(&index, &objects);
            }
            let (group, resource, prefix) = KINDS[random.below(5)];
            let (asking, namespace) = (NODES[random.below(2)], NAMESPACES[random.below(2)]);
            let case = Case {
                group: group.to_owned(),
                resource: resource.to_owned(),
                ..secret(namespace, &format!("{prefix}{}", random.below(3)))
            };
            let allowed = decide(&node, &UserInfo::node(asking), &case).is_allowed();
            let expected = is_needed_by_a_walk(&objects, asking, resource, namespace, &case.object);
            assert_eq!(
                allowed, expected,
                "seed {seed}, step {step}: {asking} {resource} {}",
                case.object
            );
        }
        let all = block_on(objects.list(&pods, "")).unwrap();
        all.iter().for_each(|pod| index.remove_pod(&pod.header.key));
        assert!(
            index.is_empty(),
            "seed {seed}: something is left of pods that are gone"
        );
    }
}

/// A pod that could not be read once is read again, and none is taken for one that needs nothing.
#[test]
fn node_index_reads_a_pod_again_that_could_not_be_read() {
    let (objects, index) = (Arc::new(Objects::default()), Arc::<NodeIndex>::default());
    let pod = r#"{"metadata":{"name":"p","namespace":"a"},"spec":{"nodeName":"n1","containers":[],
        "volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#;
    objects.put("", "pods", "a", "p", pod);
    feed(&index, &objects);
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, Arc::clone(&index));
    let is_allowed = || decide(&node, &UserInfo::node("n1"), &secret("a", "s")).is_allowed();
    objects.fail(true);
    assert!(!is_allowed());
    objects.fail(false);
    assert!(is_allowed());
}

/// Each pod of five thousand on one node is read once, however often its node asks.
#[test]
fn node_index_reads_a_pod_once_for_all_questions() {
    const PODS: usize = 5_000;
    let (objects, index) = (Arc::new(Objects::default()), Arc::<NodeIndex>::default());
    let pod = |at: usize| {
        format!(
            r#"{{"metadata":{{"name":"p{at}","namespace":"a"}},"spec":{{"nodeName":"n1","containers":[],
            "volumes":[{{"name":"v","secret":{{"secretName":"s{at}"}}}}]}}}}"#
        )
    };
    for at in 0..PODS {
        objects.put("", "pods", "a", &format!("p{at}"), &pod(at));
    }
    feed(&index, &objects);
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, Arc::clone(&index));
    let reads = |name: &str, may: bool| {
        objects.take_read();
        let decision = decide(&node, &UserInfo::node("n1"), &secret("a", name));
        assert_eq!(decision.is_allowed(), may, "{name}");
        objects.take_read()
    };
    assert_eq!(reads("s4999", true), PODS);
    assert_eq!(reads("s17", true), 0);
    assert_eq!(
        reads("nothing", false),
        0,
        "what no pod needs is known without a walk"
    );
    let header = ObjectHeader {
        key: ObjectKey::new("a", "p17"),
        fields: machinery_meta::Fields::from([("spec.nodeName", "n1")]),
        ..ObjectHeader::default()
    };
    objects.put("", "pods", "a", "p17", &pod(6_000));
    index.put_pod(&header, Revision(PODS as u64 + 1));
    assert_eq!(reads("s6000", true), 1);
    assert_eq!(reads("s17", false), 0);
    // Deleted, and the index does not know it yet.
    objects.remove("", "pods", "a", "p18");
    index.remove_pod(&ObjectKey::new("a", "p18"));
    assert_eq!(reads("s18", false), 0);
}

/// A volume that the index has not seen, that changed, and that went.
#[test]
fn node_index_follows_volumes() {
    let objects = Arc::new(objects_with_csi_volume());
    let index = Arc::<NodeIndex>::default();
    let node = NodeAuthorizer::new(Arc::clone(&objects) as Arc<dyn ObjectReader>, Arc::clone(&index));
    let pods = block_on(objects.list(&GroupResource::new("", "pods"), "")).unwrap();
    index.replace_pods(pods.iter().map(|pod| (&*pod.header, pod.revision)));
    let may = |name: &str| decide(&node, &UserInfo::node("n1"), &secret("storage", name)).is_allowed();
    assert!(
        may("stage") && !may("other"),
        "a volume that is not in the index is read"
    );
    feed(&index, &objects);
    objects.take_read();
    assert!(may("stage") && !may("other"));
    assert_eq!(
        objects.take_read(),
        2,
        "the claim and the volume, for the secret they need"
    );
    let volumes = GroupResource::new("", "persistentvolumes");
    let key = ObjectKey::new("", "pv");
    let volume = block_on(objects.get(&volumes, &key)).unwrap().unwrap();
    let json = String::from_utf8(volume.json).unwrap().replace("stage", "other");
    objects.put("", "persistentvolumes", "", "pv", &json);
    assert!(!may("stage") && may("other"), "before the index hears of it");
    feed(&index, &objects);
    assert!(!may("stage") && may("other"));
    objects.remove("", "persistentvolumes", "", "pv");
    assert!(!may("other"));
    index.remove_volume(&key);
    index.remove_pod(&ObjectKey::new("a", "p"));
    assert!(index.is_empty());
}
