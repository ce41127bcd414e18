//! Answers of the plugins for a pod and its nodes.

use super::*;
use crate::framework::{PluginRegistration, Rejection};
use crate::volumes::pod_volumes::OnNode;
use crate::volumes::reservation::check;
use crate::volumes::{Binding, Provision, Reservation};
use machinery_meta::Revision;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Case {
    name: String,
    pod: Value,
    /// Pods on the first node.
    pods: Vec<Value>,
    nodes: Vec<Value>,
    claims: Vec<Value>,
    volumes: Vec<Value>,
    classes: Vec<Value>,
    drivers: Vec<Value>,
    capacities: Vec<Value>,
    csi_nodes: Vec<Value>,
    attachments: Vec<Value>,
    pre_filter: Option<Status>,
    /// By node.
    filter: Vec<Option<Status>>,
    scores: Vec<i64>,
    /// Of the one node, in tables of the binder.
    reasons: Vec<String>,
    fails: bool,
    bindings: Vec<Value>,
    provisions: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Status {
    code: String,
    #[serde(default)]
    reasons: Vec<String>,
}

impl Status {
    fn of(rejection: Rejection) -> Self {
        let resolvable = !rejection.unresolvable;
        let code = if resolvable {
            "Unschedulable"
        } else {
            "UnschedulableAndUnresolvable"
        };
        Self {
            code: code.to_owned(),
            reasons: rejection.reasons.into_iter().map(Into::into).collect(),
        }
    }
}

fn cases(table: &str) -> Vec<Case> {
    table
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

impl Case {
    fn nodes(&self) -> NodeTable {
        let mut nodes = NodeTable::default();
        let bare = [json!({"metadata": {"name": "n"}})];
        let own = if self.nodes.is_empty() {
            &bare[..]
        } else {
            &self.nodes
        };
        for node in own {
            nodes.set_node(&serde_json::from_value(node.clone()).unwrap());
        }
        let volumes = &mut nodes.volumes;
        for claim in &self.claims {
            volumes.set_claim(&key_of(claim), Some(claim_of(claim)));
        }
        for volume in &self.volumes {
            volumes.set_volume(&key_of(volume).name, Some(volume_of(volume)));
        }
        for class in &self.classes {
            volumes.set_class(&key_of(class).name, Some(class_of(class)));
        }
        for driver in &self.drivers {
            volumes.set_driver(&key_of(driver).name, Some(driver_of(driver)));
        }
        for capacity in &self.capacities {
            volumes.set_capacity(&key_of(capacity), Some(capacity_of(capacity)));
        }
        for node in self.csi_nodes.iter().filter(|node| !node.is_null()) {
            volumes.set_csi_node(&key_of(node).name, Some(csi_node_of(node)));
        }
        for own in &self.attachments {
            volumes.set_attachment(&key_of(own).name, Some(attachment_of(own)));
        }
        for pod in &self.pods {
            nodes.add_to_row(0, &pod_of(pod));
        }
        nodes
    }

    fn pod(&self) -> Arc<PodInfo> {
        pod_of(&self.pod)
    }
}

fn row(plugin: &str) -> PluginRegistration {
    let mut rows = default_plugins().filter.into_iter();
    rows.find(|row| row.plugin.name() == plugin).unwrap()
}

fn check_filters(plugin: &str, table: &str, expected: usize) {
    let plugin = row(plugin).plugin;
    let cases = cases(table);
    for case in &cases {
        let (nodes, pod, name) = (case.nodes(), case.pod(), &case.name);
        let attempt = Attempt::new(&pod);
        let cycle = attempt.on(&nodes);
        let before = plugin.node_names(cycle).map(|_| ()).map_err(Status::of).err();
        let skips = case.pre_filter.as_ref().is_some_and(|own| own.code == "Skip");
        if skips {
            assert_eq!(before, None, "{name}");
            assert!(plugin.filter(cycle).is_none(), "{name}");
            continue;
        }
        assert_eq!(before, case.pre_filter, "{name}");
        if before.is_some() {
            continue;
        }
        let filter = plugin.filter(cycle);
        for (node, expected) in case.filter.iter().enumerate() {
            let found = filter.as_ref().and_then(|filter| filter.check(node).err());
            assert_eq!(found.map(Status::of), *expected, "{name}, node {node}");
        }
        if !case.scores.is_empty() {
            let all: Vec<usize> = (0..case.nodes.len()).collect();
            let scores = plugin.cluster_scores(cycle, &all);
            assert_eq!(scores, Some(case.scores.clone()), "{name}");
        }
    }
    assert_eq!(cases.len(), expected);
}

#[test]
fn volume_binding_says_as_upstreams() {
    check_filters("VolumeBinding", include_str!("data/volume_binding.jsonl"), 15);
}

#[test]
fn volume_restrictions_say_as_upstreams() {
    let table = include_str!("data/volume_restrictions.jsonl");
    check_filters("VolumeRestrictions", table, 22);
}

#[test]
fn volume_zone_says_as_upstreams() {
    check_filters("VolumeZone", include_str!("data/volume_zone.jsonl"), 24);
}

#[test]
fn node_volume_limits_say_as_upstreams() {
    let table = include_str!("data/node_volume_limits.jsonl");
    check_filters("NodeVolumeLimits", table, 25);
}

/// The classes of `binder_test.go`.
fn classes() -> Vec<Value> {
    let class = |name: &str, mode: &str, provisioner: &str, values: Value| {
        let labels = json!([{"matchLabelExpressions": [{"key": "nodeKey", "values": values}]}]);
        let topologies = if values.is_null() { json!([]) } else { labels };
        json!({"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": provisioner,
            "allowedTopologies": topologies})
    };
    let wait = "WaitForFirstConsumer";
    let (made, none) = ("test-provisioner", "kubernetes.io/no-provisioner");
    vec![
        class(
            "waitClassWithProvisioner",
            wait,
            made,
            json!(["node1", "reference-value"]),
        ),
        class("immediateClass", "Immediate", "", Value::Null),
        class("waitClass", wait, none, Value::Null),
        class("topoMismatchClass", wait, made, json!(["reference-value"])),
    ]
}

#[test]
fn claims_of_a_pod_find_volumes_as_upstreams() {
    let cases = cases(include_str!("data/volume_binder.jsonl"));
    for case in &cases {
        let mut nodes = case.nodes();
        for class in classes() {
            nodes
                .volumes
                .set_class(&key_of(&class).name, Some(class_of(&class)));
        }
        let (pod, name) = (case.pod(), &case.name);
        let attempt = Attempt::new(&pod);
        let Ok(sorted) = attempt.volumes(&nodes) else {
            assert!(case.fails, "{name}");
            continue;
        };
        let OnNode {
            reasons,
            bindings,
            provisions,
        } = sorted.on(&attempt, &nodes, 0);
        assert!(!case.fails, "{name}");
        assert_eq!(reasons, case.reasons, "{name}");
        let claim = |at: usize| &*sorted.waiting[at].key.name;
        let bindings = bindings.iter();
        let bindings = bindings.map(|(at, own)| json!({"claim": claim(*at), "volume": own.name}));
        assert_eq!(bindings.collect::<Vec<_>>(), case.bindings, "{name}");
        let provisions = provisions.iter().map(|(at, _)| claim(*at).to_owned());
        let provisions: Vec<String> = provisions.filter(|_| reasons.is_empty()).collect();
        assert_eq!(provisions, case.provisions, "{name}");
    }
    assert_eq!(cases.len(), 52);
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct BoundCase {
    name: String,
    node: Value,
    volumes: Vec<Value>,
    claims: Vec<Value>,
    bindings: Vec<Value>,
    provisions: Vec<Value>,
    api_volumes: Vec<Value>,
    api_claims: Vec<Value>,
    delete_volumes: bool,
    delete_claims: bool,
    fails: bool,
    bound: bool,
}

impl BoundCase {
    fn nodes(&self) -> NodeTable {
        let mut nodes = NodeTable::default();
        nodes.set_node(&serde_json::from_value(self.node.clone()).unwrap());
        let all = &mut nodes.volumes;
        let newer = |object: &Value| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!("2");
            object
        };
        for own in &self.volumes {
            let kept = (!self.delete_volumes).then(|| volume_of(own));
            all.set_volume(&key_of(own).name, kept);
        }
        for own in self.api_volumes.iter().filter(|_| !self.delete_volumes) {
            all.set_volume(&key_of(own).name, Some(volume_of(&newer(own))));
        }
        for own in &self.claims {
            let kept = (!self.delete_claims).then(|| claim_of(own));
            all.set_claim(&key_of(own), kept);
        }
        for own in self.api_claims.iter().filter(|_| !self.delete_claims) {
            all.set_claim(&key_of(own), Some(claim_of(&newer(own))));
        }
        nodes
    }

    fn reservation(&self) -> Reservation {
        let binding = |own: &Value| Binding {
            volume: (*key_of(&own["volume"]).name).into(),
            revision: Revision(1),
            claim: key_of(&own["claim"]),
            claim_uid: "pvc-uid".into(),
            claim_revision: Revision(1),
            marks: false,
            written: true,
        };
        let provision = |own: &Value| Provision {
            claim: key_of(own),
            revision: Revision(1),
            written: true,
        };
        Reservation {
            bindings: self.bindings.iter().map(binding).collect(),
            provisions: self.provisions.iter().map(provision).collect(),
            ..Reservation::default()
        }
    }
}

#[test]
fn claims_are_known_to_be_bound_as_upstreams() {
    let mut count = 0;
    for line in include_str!("data/check_bindings.jsonl").lines() {
        let case: BoundCase = serde_json::from_str(line).unwrap();
        let found = check(&case.reservation(), &case.nodes(), "node1");
        let name = &case.name;
        assert_eq!(found.is_err(), case.fails, "{name}: {found:?}");
        assert_eq!(found.unwrap_or(false), case.bound, "{name}");
        count += 1;
    }
    assert_eq!(count, 17);
}
