//! Plugins that are off by default, by upstream's tables (`testdata/off_by_default`).

use super::{Case, NoRights, Objects, block_on, create, parts};
use crate::plugins::{
    NamespaceProvisioner, OFF_BY_DEFAULT, Parts, PodNodeSelectorConfiguration,
    PodTolerationRestrictionConfiguration, all,
};
use crate::webhooks::tests::deployments;
use crate::{AdmissionChain, AdmissionError, Operation, Request};
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NODE_SELECTORS: &str = include_str!("../../../testdata/off_by_default/pod_node_selector.json");
const TOLERATIONS: &str = include_str!("../../../testdata/off_by_default/pod_toleration_restriction.json");
const EXTENDED: &str = include_str!("../../../testdata/off_by_default/extended_resource_toleration.json");

/// Counts the namespaces that are made.
#[derive(Debug, Default)]
pub(super) struct Provisioned(AtomicUsize);

#[async_trait::async_trait]
impl NamespaceProvisioner for Provisioned {
    async fn provision(&self, name: &str) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match name {
            "refused" => Err("no namespace of this name".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The chain of one plugin.
fn only(name: &str, objects: Objects, configure: impl FnOnce(&mut Parts)) -> AdmissionChain {
    let reader: Arc<dyn ObjectReader> = Arc::new(objects);
    let permissions: Arc<dyn crate::permissions::Permissions> = Arc::new(NoRights);
    let mut parts = parts(&reader, None);
    configure(&mut parts);
    let all = all(&reader, &permissions, Arc::new(|| 0), parts);
    let one: Vec<_> = all.into_iter().filter(|own| own.name() == name).collect();
    assert_eq!(one.len(), 1, "{name}");
    AdmissionChain::new(one)
}

fn run(
    chain: &AdmissionChain,
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<Tree, AdmissionError> {
    let tree = |value: &Value| Tree::from_json(&value.to_string()).unwrap();
    let (mut object, old) = (tree(object), old.map(tree));
    block_on(chain.mutate(request, &mut object, old.as_ref()))?;
    block_on(chain.validate(request, Some(&object), old.as_ref()))?;
    Ok(object)
}

fn namespace(annotations: &Value) -> Objects {
    let object = json!({"metadata": {"name": "a", "annotations": annotations}});
    Objects::default().with("namespaces", "", "a", &object.to_string())
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn member(tree: &Tree, path: &[&str]) -> Value {
    tree.at(path)
        .map_or(Value::Null, |own| serde_json::from_str(&own.to_json()).unwrap())
}

#[test]
fn plugins_off_by_default_are_names_of_plugins() {
    for name in OFF_BY_DEFAULT {
        assert!(crate::plugins::NAMES.contains(&name), "{name}");
    }
    assert!(OFF_BY_DEFAULT.is_sorted());
}

#[test]
fn pod_node_selectors_are_merged_as_upstreams_table_says() {
    for row in rows(NODE_SELECTORS) {
        let annotations = row.get("namespace").map_or(
            json!({}),
            |own| json!({"scheduler.alpha.kubernetes.io/node-selector": own}),
        );
        let written = json!({"podNodeSelectorPluginConfig": {
            "clusterDefaultNodeSelector": row["default"], "a": row.get("whitelist").unwrap_or(&json!(""))}});
        let chain = only("PodNodeSelector", namespace(&annotations), |parts| {
            parts.node_selectors = PodNodeSelectorConfiguration::parse(Some(&written));
        });
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": row["pod"]}});
        match run(&chain, &create("pods", "a").request(), &pod, None) {
            Ok(pod) => assert_eq!(member(&pod, &["spec", "nodeSelector"]), row["merged"], "{row}"),
            Err(error) => assert_eq!(
                error.to_string(),
                row["refused"].as_str().unwrap_or("taken"),
                "{row}"
            ),
        }
    }
}

fn toleration(value: &Value) -> Value {
    match value.as_str().unwrap() {
        "memory-pressure" => {
            json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"})
        }
        value => json!({"key": "testKey", "operator": "Equal", "value": value, "effect": "NoSchedule"}),
    }
}

fn tolerations(of: Option<&Value>) -> Value {
    let values = of.and_then(Value::as_array).cloned().unwrap_or_default();
    values.iter().map(toleration).collect()
}

#[test]
fn pod_tolerations_are_restricted_as_upstreams_table_says() {
    for row in rows(TOLERATIONS) {
        let mut annotations = json!({});
        for (member, key) in [
            ("namespace", "defaultTolerations"),
            ("whitelist", "tolerationsWhitelist"),
        ] {
            if row.get(member).is_some() {
                let list = tolerations(row.get(member)).to_string();
                annotations[format!("scheduler.alpha.kubernetes.io/{key}")] = list.into();
            }
        }
        let written = json!({"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration",
            "default": tolerations(row.get("default")), "whitelist": tolerations(row.get("cluster"))});
        let chain = only("PodTolerationRestriction", namespace(&annotations), |parts| {
            parts.tolerations = PodTolerationRestrictionConfiguration::parse(Some(&written)).unwrap();
        });
        let container = json!({"name": "c", "resources": row.get("resources").unwrap_or(&json!({}))});
        let pod = json!({"spec": {"containers": [container], "tolerations": tolerations(row.get("pod"))}});
        match run(&chain, &create("pods", "a").request(), &pod, None) {
            Ok(pod) => {
                let found = pod
                    .at(&["spec", "tolerations"])
                    .map_or(json!([]), |_| member(&pod, &["spec", "tolerations"]));
                assert_eq!(found, tolerations(row.get("merged")), "{row}");
                assert!(row.get("refused").is_none(), "{row}");
            }
            Err(error) => {
                let scope = row["refused"].as_str().unwrap_or("taken");
                let words = format!(
                    "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
                );
                assert_eq!(error.to_string(), words, "{row}");
            }
        }
    }
}

#[test]
fn pod_toleration_restriction_of_another_form_is_refused() {
    let parse = |written: Value| PodTolerationRestrictionConfiguration::parse(Some(&written)).map(drop);
    assert!(parse(json!({"kind": "Configuration", "apiVersion": "v1"})).is_err());
    let of = |whitelist: Value| json!({"kind": "Configuration", "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "whitelist": whitelist});
    assert_eq!(
        parse(of(json!(["x"]))).unwrap_err(),
        "json: cannot unmarshal into Go value of type []v1.Toleration"
    );
    assert_eq!(parse(of(json!([{"key": "x"}]))), Ok(()));
}

#[test]
fn extended_resources_are_tolerated_as_upstreams_table_says() {
    let chain = only("ExtendedResourceToleration", Objects::default(), |_| {});
    for row in rows(EXTENDED) {
        let container = |member: &str| json!([{"name": "c", "resources": {"requests": row.get(member).unwrap_or(&json!({}))}}]);
        let pod = json!({"spec": {"containers": container("requests"), "initContainers": container("init"), "tolerations": row["pod"]}});
        let pod = run(&chain, &create("pods", "a").request(), &pod, None).unwrap();
        assert_eq!(member(&pod, &["spec", "tolerations"]), row["merged"], "{row}");
    }
}

fn pod_of_images() -> Value {
    let containers = json!([{"image": "a"}, {"image": "a", "imagePullPolicy": "Never"}, {"image": "a", "imagePullPolicy": "Always"}]);
    let volumes = json!([{"image": {"pullPolicy": "Never"}}, {"emptyDir": {}}]);
    json!({"metadata": {"name": "123"}, "spec": {"initContainers": containers, "containers": containers, "volumes": volumes}})
}

#[test]
fn images_are_always_pulled_of_new_pods_and_new_images() {
    let chain = only("AlwaysPullImages", Objects::default(), |_| {});
    let case = create("pods", "a");
    let pod = run(&chain, &case.request(), &pod_of_images(), None).unwrap();
    let spec = pod.get("spec").unwrap();
    for list in ["containers", "initContainers"] {
        assert!(
            spec.list(list).all(|own| own.str("imagePullPolicy") == "Always"),
            "{}",
            spec.to_json()
        );
    }
    assert_eq!(
        member(&pod, &["spec", "volumes"]),
        json!([{"image": {"pullPolicy": "Always"}}, {"emptyDir": {}}])
    );
    // What changes no image stays, and a new one does not.
    let update = Request {
        operation: Operation::Update,
        ..case.request()
    };
    let old = pod_of_images();
    let kept = run(&chain, &update, &old, Some(&old)).unwrap();
    assert_eq!(member(&kept, &["spec"]), old["spec"]);
    let mut other = pod_of_images();
    other["spec"]["containers"][1]["image"] = "b".into();
    let changed = run(&chain, &update, &other, Some(&old)).unwrap();
    assert_eq!(
        changed
            .get("spec")
            .unwrap()
            .list("containers")
            .nth(1)
            .unwrap()
            .str("imagePullPolicy"),
        "Always"
    );
}

#[test]
fn images_that_are_not_always_pulled_are_refused() {
    let chain = only("AlwaysPullImages", Objects::default(), |_| {});
    let pod = Tree::from_json(&pod_of_images().to_string()).unwrap();
    let refused = block_on(chain.validate(&create("pods", "a").request(), Some(&pod), None)).unwrap_err();
    let one = |path: &str, value: &str| {
        format!(
            "pods \"123\" is forbidden: {path}: Unsupported value: {value:?}: supported values: \"Always\""
        )
    };
    let expected = [
        one("spec.initContainers[0].imagePullPolicy", ""),
        one("spec.initContainers[1].imagePullPolicy", "Never"),
        one("spec.containers[0].imagePullPolicy", ""),
        one("spec.containers[1].imagePullPolicy", "Never"),
        one("spec.volumes[0].image.pullPolicy", "Never"),
    ];
    assert_eq!(refused.to_string(), format!("[{}]", expected.join(", ")));
}

#[test]
fn pods_keep_others_away_from_nodes_only() {
    let chain = only("LimitPodHardAntiAffinityTopology", Objects::default(), |_| {});
    let pod = |keys: &[&str]| {
        let terms: Vec<Value> = keys.iter().map(|key| json!({"topologyKey": key})).collect();
        json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}})
    };
    let refused = |pod: &Value| {
        run(&chain, &create("pods", "a").request(), pod, None)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused(&json!({"spec": {"affinity": {}}})), None);
    assert_eq!(refused(&pod(&["kubernetes.io/hostname"])), None);
    let words = "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed";
    assert_eq!(
        refused(&pod(&["kubernetes.io/hostname", "zone"])).as_deref(),
        Some(words)
    );
}

#[test]
fn namespaces_must_exist_or_are_made() {
    let exists = only("NamespaceExists", namespace(&json!({})), |_| {});
    let case = |namespace: &'static str| create("configmaps", namespace);
    assert!(run(&exists, &case("a").request(), &json!({}), None).is_ok());
    let absent = run(&exists, &case("b").request(), &json!({}), None).unwrap_err();
    assert_eq!(absent.to_string(), r#"namespaces "b" not found"#);
    let made = Arc::new(Provisioned::default());
    let provisioner = Arc::clone(&made);
    let chain = only("NamespaceAutoProvision", namespace(&json!({})), |parts| {
        parts.provisioner = provisioner
    });
    let provision = |case: &Case, dry_run: bool| {
        let request = Request {
            dry_run,
            ..case.request()
        };
        let done = run(&chain, &request, &json!({}), None)
            .map(drop)
            .map_err(|error| error.to_string());
        (done, made.0.swap(0, Ordering::Relaxed))
    };
    assert_eq!(provision(&case("a"), false), (Ok(()), 0));
    assert_eq!(provision(&case("b"), false), (Ok(()), 1));
    assert_eq!(provision(&case("b"), true), (Ok(()), 0));
    assert_eq!(provision(&create("namespaces", "b"), false), (Ok(()), 0));
    assert_eq!(
        provision(
            &Case {
                operation: Operation::Update,
                ..case("b")
            },
            false
        ),
        (Ok(()), 0)
    );
    let refused = provision(&case("refused"), false);
    assert_eq!(refused, (Err("no namespace of this name".to_owned()), 1));
}

#[test]
fn everything_is_denied_or_nothing() {
    let (admit, deny) = (
        only("AlwaysAdmit", Objects::default(), |_| {}),
        only("AlwaysDeny", Objects::default(), |_| {}),
    );
    let case = create("configmaps", "a");
    assert!(run(&admit, &case.request(), &json!({}), None).is_ok());
    let words = "admission control is denying all modifications";
    assert_eq!(
        run(&deny, &case.request(), &json!({}), None)
            .unwrap_err()
            .to_string(),
        words
    );
    for operation in Operation::ALL {
        let request = Request {
            operation: *operation,
            ..case.request()
        };
        assert_eq!(
            block_on(deny.validate(&request, None, None))
                .unwrap_err()
                .to_string(),
            words
        );
    }
}

fn owned(owners: &Value) -> Value {
    json!({"metadata": {"name": "p", "ownerReferences": owners}})
}

/// A host whose user may only `breakglass` deployments.
#[test]
fn owners_are_changed_by_those_who_may_delete_and_finalize() {
    let chain = only("OwnerReferencesPermissionEnforcement", Objects::default(), |_| {});
    let host = deployments("");
    let refused = |operation: Operation, new: &Value, old: Option<&Value>| {
        let case = Case {
            operation,
            ..create("pods", "a")
        };
        let request = Request {
            host: Some(&host),
            ..case.request()
        };
        run(&chain, &request, new, old)
            .err()
            .map(|error| error.to_string())
    };
    let owner = |kind: &str, blocks: bool| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "blockOwnerDeletion": blocks});
    let (free, blocking) = (
        owned(&json!([owner("Node", false)])),
        owned(&json!([owner("Node", true)])),
    );
    assert_eq!(refused(Operation::Create, &free, None), None);
    assert_eq!(refused(Operation::Update, &blocking, Some(&blocking)), None);
    let words = "cannot set an ownerRef on a resource you can't delete: , <nil>";
    assert_eq!(
        refused(Operation::Update, &free, Some(&owned(&json!([])))).as_deref(),
        Some(words)
    );
    let words = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert_eq!(
        refused(Operation::Create, &blocking, None).as_deref(),
        Some(words)
    );
    let words = "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Boat: no matches for kind \"Boat\" in version \"v1\"";
    assert_eq!(
        refused(Operation::Create, &owned(&json!([owner("Boat", true)])), None).as_deref(),
        Some(words)
    );
}
