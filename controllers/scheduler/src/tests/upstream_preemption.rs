//! Upstream's tables of preemption (`default_preemption_test.go` 1.37), in `testdata/preemption.json`.

use crate::algorithm::{Algorithm, Nominations};
use crate::attempt::Attempt;
use crate::config::args::DefaultPreemptionArgs;
use crate::nodes::{NodeId, NodeTable};
use crate::object::{Node, Pod};
use crate::plugins::default_plugins;
use crate::pod::PodInfo;
use crate::post_filter::found_words;
use crate::preemption::{Budget, Budgets, Candidate, DryRun, Surroundings, best_of};
use machinery_meta::ObjectKey;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tables {
    dry_run: Vec<DryRunRow>,
    best: Vec<BestRow>,
    eligible: Vec<EligibleRow>,
}

/// Nodes with pods, and the candidates of one preemptor after another.
#[derive(Deserialize)]
struct DryRunRow {
    name: String,
    #[serde(flatten)]
    world: WorldFields,
    preemptors: Vec<Value>,
    #[serde(default)]
    budgets: Vec<BudgetFields>,
    /// Percentage and number of nodes that are looked at.
    limits: Option<(usize, usize)>,
    /// The node with which each dry run begins.
    #[serde(default)]
    offsets: Vec<u64>,
    expected: Vec<Vec<Found>>,
}

#[derive(Deserialize)]
struct WorldFields {
    nodes: Vec<NodeFields>,
    capacity: Map<String, Value>,
    pods: Vec<Value>,
}

#[derive(Deserialize)]
struct NodeFields {
    name: String,
    labels: Map<String, Value>,
}

#[derive(Deserialize)]
struct BudgetFields {
    name: String,
    selector: Value,
    allowed: i32,
    disrupted: BTreeSet<Box<str>>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    node: String,
    victims: Vec<String>,
    #[serde(default)]
    violations: usize,
}

/// The best node, one of those.
#[derive(Deserialize)]
struct BestRow {
    name: String,
    #[serde(flatten)]
    world: WorldFields,
    preemptor: Value,
    expected: Vec<String>,
}

#[derive(Deserialize)]
struct EligibleRow {
    name: String,
    nodes: Vec<String>,
    pods: Vec<Value>,
    pod: Value,
    /// The nominated node is one on which preempting does not help.
    unresolvable: bool,
    eligible: bool,
    /// Reason for which the row is not held to.
    differs: Option<String>,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../testdata/preemption.json")).unwrap()
}

fn pod_of(json: &Value) -> Arc<PodInfo> {
    let mut json = json.clone();
    if json["metadata"]["namespace"].is_null() {
        json["metadata"]["namespace"] = json!("default");
    }
    if json["spec"]["containers"].is_null() {
        json["spec"]["containers"] = json!([{"name": "c"}]);
    }
    let pod: Pod = serde_json::from_value(json).unwrap();
    Arc::new(PodInfo::new(pod))
}

impl WorldFields {
    fn table(&self) -> NodeTable {
        let mut nodes = NodeTable::default();
        self.add_to(&mut nodes);
        nodes
    }

    fn add_to(&self, nodes: &mut NodeTable) {
        let mut capacity = self.capacity.clone();
        capacity.entry("pods").or_insert_with(|| json!("32"));
        for fields in &self.nodes {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": fields.name, "labels": fields.labels}, "spec": {},
                "status": {"allocatable": capacity}}))
            .unwrap();
            nodes.set_node(&node);
        }
        for json in &self.pods {
            let pod = pod_of(json);
            let node = pod.pod.spec.node_name.clone();
            nodes.set_pod(&pod, &node);
        }
    }

    fn ids(&self, nodes: &NodeTable) -> Vec<NodeId> {
        let all = self.nodes.iter();
        all.map(|own| nodes.id(&own.name).unwrap()).collect()
    }
}

/// The candidates of a preemptor, all nodes being looked at as far as the limits say.
fn candidates(
    world: &WorldFields,
    pod: &Arc<PodInfo>,
    budgets: &Budgets,
    args: DefaultPreemptionArgs,
    offset: u64,
) -> (NodeTable, Vec<Candidate>) {
    let mut nodes = world.table();
    let (mut algorithm, nominations) = (Algorithm::new(default_plugins()), Nominations::default());
    let attempt = Attempt::new(pod);
    // What filters prepare before they look at nodes.
    let _ = algorithm.place(&attempt, &mut nodes, &nominations, 0);
    let around = Surroundings {
        algorithm: &algorithm,
        nominations: &nominations,
        budgets,
    };
    let mut dry_run = DryRun::begin(pod, &nodes, &world.ids(&nodes), offset, args).unwrap();
    assert!(dry_run.advance(&attempt, &mut nodes, around, usize::MAX));
    (nodes, dry_run.candidates().unwrap_or_default())
}

fn names(candidate: &Candidate) -> Vec<String> {
    let mut names: Vec<String> = candidate.victims.iter().map(|own| own.key.name.clone()).collect();
    names.sort();
    names
}

fn budgets_of(all: &[BudgetFields]) -> Budgets {
    let budgets = all.iter().map(|own| {
        let budget = Budget {
            selector: serde_json::from_value(own.selector.clone()).unwrap(),
            disruptions_allowed: own.allowed,
            disrupted_pods: own.disrupted.clone(),
        };
        (ObjectKey::new("default", own.name.as_str()), budget)
    });
    budgets.collect()
}

impl DryRunRow {
    fn budgets(&self) -> Budgets {
        budgets_of(&self.budgets)
    }

    fn args(&self) -> DefaultPreemptionArgs {
        let (percentage, number) = self.limits.unwrap_or((10, 100));
        DefaultPreemptionArgs {
            min_candidate_nodes_percentage: percentage,
            min_candidate_nodes_absolute: number,
        }
    }
}

#[test]
fn preemption_finds_the_candidates_of_upstream() {
    for row in tables().dry_run {
        for (cycle, expected) in row.expected.iter().enumerate() {
            let pod = pod_of(&row.preemptors[cycle]);
            let offset = row.offsets.get(cycle).copied().unwrap_or(0);
            let (nodes, found) = candidates(&row.world, &pod, &row.budgets(), row.args(), offset);
            let found = found.iter().map(|own| Found {
                node: nodes.names[own.node].to_string(),
                victims: names(own),
                violations: own.violations,
            });
            let mut found: Vec<Found> = found.collect();
            found.sort();
            assert_eq!(found, *expected, "{}, cycle {cycle}", row.name);
        }
    }
}

#[test]
fn preemption_takes_the_candidate_of_upstream() {
    for row in tables().best {
        let pod = pod_of(&row.preemptor);
        let args = DefaultPreemptionArgs::default();
        let (nodes, found) = candidates(&row.world, &pod, &Budgets::new(), args, 0);
        let best = best_of(found).map(|own| nodes.names[own.node].to_string());
        assert!(
            best.as_ref().is_some_and(|own| row.expected.contains(own)),
            "{}: {best:?}",
            row.name
        );
    }
}

#[test]
fn preemption_is_for_the_pods_of_upstream() {
    for row in tables().eligible {
        let world = WorldFields {
            nodes: row
                .nodes
                .iter()
                .map(|name| NodeFields {
                    name: name.clone(),
                    labels: Map::new(),
                })
                .collect(),
            capacity: Map::new(),
            pods: row.pods,
        };
        let nodes = world.table();
        let mut resolvable = world.ids(&nodes);
        let pod = pod_of(&row.pod);
        if row.unresolvable {
            resolvable.retain(|own| *nodes.names[*own] != *pod.pod.status.nominated_node_name);
        }
        let begun = DryRun::begin(&pod, &nodes, &resolvable, 0, DefaultPreemptionArgs::default());
        assert_eq!(
            begun.is_ok() == row.eligible,
            row.differs.is_none(),
            "{}",
            row.name
        );
    }
}

/// Words of preemption at the end of an attempt. Left out are the rows of plugins and extenders that upstream's test makes,
/// and those of gates that are off.
#[derive(Deserialize)]
struct PostFilterRow {
    name: String,
    pod: Value,
    pods: Vec<Value>,
    nodes: Vec<NodeWithCapacity>,
    /// Nodes on which preempting may help, as far as the filters said.
    resolvable: Vec<String>,
    #[serde(default)]
    budgets: Vec<BudgetFields>,
    /// The node that is nominated.
    node: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct NodeWithCapacity {
    name: String,
    capacity: Map<String, Value>,
}

impl PostFilterRow {
    fn table(&self) -> NodeTable {
        let mut nodes = NodeTable::default();
        for fields in &self.nodes {
            let world = WorldFields {
                nodes: vec![NodeFields {
                    name: fields.name.clone(),
                    labels: Map::new(),
                }],
                capacity: fields.capacity.clone(),
                pods: Vec::new(),
            };
            world.add_to(&mut nodes);
        }
        for json in &self.pods {
            let pod = pod_of(json);
            nodes.set_pod(&pod, &pod.pod.spec.node_name.clone());
        }
        nodes
    }
}

#[test]
fn preemption_ends_in_the_words_of_upstream() {
    let rows = include_str!("../../testdata/preemption_post_filter.json");
    for row in serde_json::from_str::<Vec<PostFilterRow>>(rows).unwrap() {
        let (mut nodes, pod) = (row.table(), pod_of(&row.pod));
        let (mut algorithm, nominations) = (Algorithm::new(default_plugins()), Nominations::default());
        let attempt = Attempt::new(&pod);
        let _ = algorithm.place(&attempt, &mut nodes, &nominations, 0);
        let budgets = budgets_of(&row.budgets);
        let around = Surroundings {
            algorithm: &algorithm,
            nominations: &nominations,
            budgets: &budgets,
        };
        let resolvable: Vec<NodeId> = row.resolvable.iter().map(|own| nodes.id(own).unwrap()).collect();
        let args = DefaultPreemptionArgs::default();
        let found = DryRun::begin(&pod, &nodes, &resolvable, 0, args).and_then(|mut dry_run| {
            assert!(dry_run.advance(&attempt, &mut nodes, around, usize::MAX));
            dry_run.end()
        });
        let node = found.as_ref().ok().map(|own| nodes.names[own.node].to_string());
        let message = match found {
            Ok(own) => found_words(&nodes.names[own.node], own.victims.len()),
            Err(impossible) => format!("preemption: {}", impossible.0),
        };
        assert_eq!((node, message), (row.node, row.message), "{}", row.name);
    }
}
