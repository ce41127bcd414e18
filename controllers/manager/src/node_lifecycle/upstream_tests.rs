//! Upstream's tables of nodes' health (`node_lifecycle_controller_test.go` 1.37), in `testdata/node_lifecycle.json`.

use super::heartbeats::{HeartbeatTracker, Now, Renewal};
use super::labels::reconciled;
use super::plan::{conditions_as_written, is_given_up_on, silenced, taints};
use super::reconcile::{eviction_permit, grace};
use super::zones::{Shift, Zones};
use super::{standing, zone};
use crate::config::Config;
use crate::pod_control::reference;
use crate::views::NodeView;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use machinery_client::object::object_of;
use machinery_client::{ApiResource, Object};
use machinery_semantics::taints::NO_EXECUTE;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
struct Tables {
    zones: Vec<ZonesRow>,
    health: Vec<HealthRow>,
    taints: Vec<TaintsRow>,
    labels: Vec<LabelsRow>,
    excluded: Vec<ExcludedRow>,
    evictions: Vec<EvictionsRow>,
}

#[derive(Deserialize, Clone)]
struct NodeFields {
    name: String,
    created: Option<String>,
    #[serde(default)]
    labels: Map<String, Value>,
    #[serde(default)]
    conditions: Vec<Value>,
}

/// Nodes and the states of their zones; then the nodes' conditions after a time, and the states.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ZonesRow {
    name: String,
    nodes: Vec<NodeFields>,
    states: BTreeMap<String, String>,
    then: BTreeMap<String, Vec<Value>>,
    seconds: u64,
    then_states: BTreeMap<String, String>,
}

/// A node and its lease, as watched and as the server has it; the same after a time, and what is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HealthRow {
    name: String,
    node: NodeFields,
    lease: Option<String>,
    stored_lease: Option<String>,
    seconds: Option<u64>,
    #[serde(default)]
    then: Vec<Value>,
    then_lease: Option<String>,
    then_stored_lease: Option<String>,
    /// Absent where the table does not look at it.
    #[serde(default, deserialize_with = "present")]
    written: Option<Option<Vec<Value>>>,
    pods_unready: bool,
    /// Reason for which the row is not held to.
    differs: Option<String>,
}

fn present<'de, D: serde::Deserializer<'de>>(own: D) -> Result<Option<Option<Vec<Value>>>, D::Error> {
    Option::deserialize(own).map(Some)
}

#[derive(Deserialize)]
struct TaintsRow {
    name: String,
    conditions: Vec<Value>,
    taints: Vec<String>,
}

#[derive(Deserialize)]
struct LabelsRow {
    name: String,
    labels: Map<String, Value>,
    expected: Map<String, Value>,
}

#[derive(Deserialize)]
struct ExcludedRow {
    name: String,
    labels: Map<String, Value>,
    excluded: bool,
}

#[derive(Deserialize)]
struct EvictionsRow {
    name: String,
    steps: Vec<EvictionsStep>,
}

/// `Ready` of nodes, and the `NoExecute` taints that nodes have then.
#[derive(Deserialize)]
struct EvictionsStep {
    nodes: BTreeMap<String, Option<String>>,
    taints: BTreeMap<String, Vec<String>>,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../testdata/node_lifecycle.json")).unwrap()
}

fn json_of(fields: &NodeFields) -> Value {
    json!({"metadata": {"name": fields.name, "uid": fields.name, "labels": fields.labels,
        "creationTimestamp": fields.created}, "status": {"conditions": fields.conditions}})
}

/// The controller over nodes in memory.
struct Bench {
    config: Config,
    zones: Zones,
    tracker: HeartbeatTracker,
    nodes: BTreeMap<String, Value>,
    /// By name, as watched and as the server has them.
    leases: BTreeMap<String, String>,
    stored_leases: BTreeMap<String, String>,
    start: Timestamp,
    passed: Duration,
    pods_unready: bool,
    written: BTreeMap<String, Vec<Value>>,
}

impl Bench {
    /// With the settings of upstream's tests, at the time at which they begin.
    fn new() -> Self {
        let config = Config {
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            node_eviction_rate: 100_000.0,
            secondary_node_eviction_rate: 100_000.0,
            large_cluster_size_threshold: 20,
            unhealthy_zone_threshold: 0.55,
            ..Config::default()
        };
        Self {
            config,
            zones: Zones::default(),
            tracker: HeartbeatTracker::default(),
            nodes: BTreeMap::new(),
            leases: BTreeMap::new(),
            stored_leases: BTreeMap::new(),
            start: "2015-01-01T12:00:00Z".parse().unwrap(),
            passed: Duration::ZERO,
            pods_unready: false,
            written: BTreeMap::new(),
        }
    }

    fn node(&self, name: &str) -> Object<NodeView> {
        object_of(&self.nodes[name].to_string()).unwrap()
    }

    fn now(&self) -> Now {
        let passed = SignedDuration::try_from(self.passed).unwrap();
        Now {
            // A server that has been up for a while.
            monotonic: self.passed + Duration::from_secs(1_000),
            wall: self.start + passed,
        }
    }

    /// The node's event.
    fn see(&self, name: &str) {
        let node = self.node(name);
        if self.zones.stands(node.key(), standing(&node)) == Shift::HeartbeatTracker {
            self.tracker.reset_heartbeats();
        }
    }

    fn left(&self, node: &Object<NodeView>, renewal: Renewal<'_>) -> Duration {
        let about = reference(&ApiResource::of::<Node>(), &node.header);
        let (_, age) = self.tracker.age(node, &about, renewal, self.now());
        grace(node, &self.config).saturating_sub(age)
    }

    fn look(&mut self, name: &str) {
        self.passed += Duration::from_millis(1);
        let node = self.node(name);
        let lease_of = |all: &BTreeMap<String, String>| all.get(name).cloned().unwrap_or_default();
        let (watched, read) = (lease_of(&self.leases), lease_of(&self.stored_leases));
        let silent = self.left(&node, Renewal::Watched(&watched)).is_zero();
        if silent
            && let Some(conditions) = silenced(&node, self.now().wall)
            && self.left(&node, Renewal::Read(&read)).is_zero()
        {
            let written = conditions_as_written(&conditions, &node.header);
            merge(&mut self.nodes.get_mut(name).unwrap()["status"], &written);
            let all = self.nodes[name]["status"]["conditions"]
                .as_array()
                .unwrap()
                .clone();
            self.written.insert(name.to_owned(), all);
            self.see(name);
            return self.look(name);
        }
        let (give_up, _) = eviction_permit(&self.zones, &node, self.now().monotonic, &self.config);
        if let Some(taints) = taints(&node, give_up, self.now().wall) {
            self.nodes.get_mut(name).unwrap()["spec"]["taints"] = json!(taints);
        }
        self.pods_unready |= is_given_up_on(&node);
    }

    fn look_at_all(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        // Zones are known before the first reconcile, and each node is reconciled again for what the others became.
        names.iter().for_each(|name| self.see(name));
        for _ in 0..2 {
            names.iter().for_each(|name| self.look(name));
        }
    }

    fn states(&self) -> BTreeMap<String, String> {
        let all = self.zones.states(&self.config).into_iter();
        all.map(|(name, state)| (name.replace(":\0:", "/"), format!("{state:?}")))
            .collect()
    }

    fn evictions(&self, name: &str) -> Vec<String> {
        let taints = self.node(name).taints.clone().into_iter();
        let evicting = taints.filter(|own| own.effect == NO_EXECUTE);
        evicting
            .map(|own| format!("{}:{}", own.key, own.effect))
            .collect()
    }
}

/// A strategic merge by type.
fn merge(status: &mut Value, written: &[Value]) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let all = status["conditions"].as_array_mut().unwrap();
    for new in written {
        match all.iter_mut().find(|own| own["type"] == new["type"]) {
            Some(own) => own
                .as_object_mut()
                .unwrap()
                .extend(new.as_object().unwrap().clone()),
            None => all.push(new.clone()),
        }
    }
}

#[test]
fn zones_are_in_the_states_of_upstream() {
    for row in tables().zones {
        let mut bench = Bench::new();
        for node in &row.nodes {
            bench.nodes.insert(node.name.clone(), json_of(node));
        }
        bench.look_at_all();
        assert_eq!(bench.states(), row.states, "{}", row.name);
        bench.passed = Duration::from_secs(row.seconds);
        for (name, conditions) in &row.then {
            bench.nodes.get_mut(name).unwrap()["status"]["conditions"] = json!(conditions);
        }
        bench.look_at_all();
        assert_eq!(bench.states(), row.then_states, "{}, later", row.name);
    }
}

fn set(leases: &mut BTreeMap<String, String>, name: &str, renewed: Option<&String>) {
    if let Some(renewed) = renewed {
        leases.insert(name.to_owned(), renewed.clone());
    }
}

#[test]
fn nodes_fall_silent_as_upstream() {
    for row in tables().health {
        let (mut bench, name) = (Bench::new(), row.node.name.as_str());
        bench.nodes.insert(name.to_owned(), json_of(&row.node));
        set(&mut bench.leases, name, row.lease.as_ref());
        set(&mut bench.stored_leases, name, row.stored_lease.as_ref());
        bench.look_at_all();
        if let Some(seconds) = row.seconds {
            bench.passed = Duration::from_secs(seconds);
            bench.nodes.get_mut(name).unwrap()["status"]["conditions"] = json!(row.then);
            set(&mut bench.leases, name, row.then_lease.as_ref());
            set(&mut bench.stored_leases, name, row.then_stored_lease.as_ref());
            bench.look_at_all();
        }
        let written = bench.written.get(name).cloned();
        let holds =
            row.written.is_none_or(|expected| written == expected) && bench.pods_unready == row.pods_unready;
        match row.differs {
            None => assert!(holds, "{}: {written:?}, pods {}", row.name, bench.pods_unready),
            Some(reason) => assert!(!holds, "{} does not differ: {reason}", row.name),
        }
    }
}

#[test]
fn conditions_taint_nodes_as_upstream() {
    for row in tables().taints {
        let node = NodeFields {
            name: "node0".to_owned(),
            created: None,
            labels: Map::new(),
            conditions: row.conditions,
        };
        let node: Object<NodeView> = object_of(&json_of(&node).to_string()).unwrap();
        let taints = taints(&node, super::plan::EvictionTaint::NotYet, Bench::new().start);
        let taints = taints.unwrap_or_default().into_iter();
        let taints: Vec<String> = taints.map(|own| format!("{}:{}", own.key, own.effect)).collect();
        assert_eq!(taints, row.taints, "{}", row.name);
    }
}

fn labelled(name: &str, labels: &Map<String, Value>) -> Object<NodeView> {
    let metadata = json!({"name": name, "labels": labels});
    object_of(&json!({"metadata": metadata, "status": {}}).to_string()).unwrap()
}

#[test]
fn labels_of_earlier_releases_follow_as_upstream() {
    for row in tables().labels {
        let mut seen = row.labels.clone();
        let written = reconciled(&labelled("node0", &row.labels).header);
        seen.extend(
            written
                .into_iter()
                .map(|(key, value)| (key.to_owned(), json!(value))),
        );
        assert_eq!(seen, row.expected, "{}", row.name);
    }
}

#[test]
fn nodes_are_excluded_from_zones_as_upstream() {
    for row in tables().excluded {
        let node = labelled(&row.name, &row.labels);
        assert_eq!(standing(&node).is_none(), row.excluded, "{}", row.name);
        assert_eq!(zone(&node), "");
    }
}

#[test]
fn nodes_are_given_up_as_upstream() {
    for row in tables().evictions {
        let mut bench = Bench::new();
        for (at, step) in row.steps.iter().enumerate() {
            bench.passed += Duration::from_secs(10);
            for (name, ready) in &step.nodes {
                let node = bench
                    .nodes
                    .entry(name.clone())
                    .or_insert_with(|| json!({"metadata": {"name": name, "uid": name}}));
                let beat = bench.start + SignedDuration::try_from(bench.passed).unwrap();
                let ready = ready.iter().map(
                    |own| json!({"type": "Ready", "status": own, "lastHeartbeatTime": beat.to_string()}),
                );
                node["status"] = json!({"conditions": ready.collect::<Vec<_>>()});
            }
            bench.look_at_all();
            for (name, expected) in &step.taints {
                assert_eq!(
                    bench.evictions(name),
                    *expected,
                    "{}, step {at}, {name}",
                    row.name
                );
            }
        }
    }
}
