//! The allocator on one node.

use super::*;
use crate::devices::Devices;
use crate::devices::allocator::{Available, Budget, Refusal, Surroundings, Wanted, allocate};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Case {
    name: String,
    claims: Vec<Value>,
    classes: Vec<Value>,
    slices: Vec<Value>,
    node: Value,
    /// Devices that claims have.
    allocated: Vec<String>,
    /// Shares of devices that claims have.
    shared: Vec<String>,
    /// Capacity that is consumed, by device.
    capacity: std::collections::BTreeMap<String, Value>,
    results: Vec<Value>,
    error: Option<String>,
}

fn cases() -> Vec<Case> {
    let table = include_str!("data/allocator.jsonl");
    table
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

impl Case {
    fn nodes(&self) -> NodeTable {
        let mut nodes = NodeTable::default();
        let node = json!({"metadata": {"name": self.node["name"], "labels": self.node["labels"]}});
        nodes.set_node(&serde_json::from_value(node).unwrap());
        let devices = &mut nodes.devices;
        for class in &self.classes {
            devices.set_class(name_of(class), Some(class_of(class)));
        }
        for (at, slice) in self.slices.iter().enumerate() {
            // Slices of a case may have one name.
            devices.set_slice(&format!("{}-{at:03}", name_of(slice)), Some(slice_of(slice)));
        }
        devices.pools.renew();
        self.allocate_before(devices);
        nodes
    }

    fn allocate_before(&self, devices: &mut Devices) {
        let device = |id: &str| {
            let parts: Vec<&str> = id.split('/').collect();
            json!({"driver": parts[0], "pool": parts[1], "device": parts[2]})
        };
        let mut results: Vec<Value> = self.allocated.iter().map(|id| device(id)).collect();
        for id in &self.shared {
            let mut share = device(id);
            share["shareID"] = "s".into();
            results.push(share);
        }
        for (id, consumed) in &self.capacity {
            let mut share = device(id);
            share["shareID"] = "c".into();
            share["consumedCapacity"] = consumed.clone();
            results.push(share);
        }
        let claim = json!({"status": {"allocation": {"devices": {"results": results}}}});
        devices.set_claim(&ObjectKey::new("", "before"), Some(claim_of(&claim)));
    }

    fn found(&self, budget: &Budget) -> Result<Vec<Value>, Refusal> {
        self.found_again(budget, &Available::default())
    }

    fn found_again(&self, budget: &Budget, available: &Available) -> Result<Vec<Value>, Refusal> {
        let nodes = self.nodes();
        let specs: Vec<_> = self
            .claims
            .iter()
            .map(|own| {
                (
                    ObjectKey::cluster(name_of(own)),
                    claim_of(own).spec.get().into_owned(),
                )
            })
            .collect();
        let wanted: Vec<Wanted<'_>> = specs.iter().map(|(key, spec)| Wanted { key, spec }).collect();
        let around = Surroundings {
            devices: &nodes.devices,
            nodes: &nodes,
            node: 0,
            available,
            budget,
        };
        let solution = allocate(around, &wanted)?;
        Ok(solution.allocations(&nodes.names[0]))
    }
}

/// The order of results says nothing, and shares have ids later.
fn comparable(mut all: Vec<Value>) -> Vec<String> {
    for own in &mut all {
        if own["devices"]["results"].is_null() {
            own["devices"] = json!({"results": []});
        }
        let results = own["devices"]["results"].as_array_mut().unwrap();
        for result in results.iter_mut() {
            if result["shareID"].is_string() {
                result["shareID"] = "share".into();
            }
            // Indexing makes what is absent null.
            result.as_object_mut().unwrap().retain(|_, own| !own.is_null());
        }
        results.sort_by_key(Value::to_string);
    }
    let mut all: Vec<String> = all.iter().map(Value::to_string).collect();
    all.sort();
    all
}

#[test]
fn allocator_gives_what_upstreams_gives() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = case.found(&Budget::default());
        let expected = comparable(case.results.clone());
        let is_right = match (&found, &case.error) {
            (Ok(found), None) => comparable(found.clone()) == expected,
            (Err(Refusal::Unsatisfied), None) => expected.is_empty() && !case.claims.is_empty(),
            (Err(why), Some(part)) => why.clone().message().contains(part.as_str()),
            _ => false,
        };
        if !is_right {
            let found = found.map(comparable);
            wrong.push(format!(
                "{}: {found:#?}, not {expected:#?} {:?}",
                case.name, case.error
            ));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn allocator_ends_a_search_that_takes_too_long() {
    let device = |at: usize| json!({"name": format!("d-{at}"), "attributes": {"a": {"int": at}}});
    let devices: Vec<Value> = (0..24).map(device).collect();
    let slice = json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": devices}});
    let request = |at: usize| json!({"name": format!("r-{at}"), "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
    let requests: Vec<Value> = (0..25).map(request).collect();
    let case = Case {
        claims: vec![json!({"metadata": {"name": "x"}, "spec": {"devices": {"requests": requests}}})],
        classes: vec![json!({"metadata": {"name": "c"}})],
        slices: vec![slice],
        node: json!({"name": "n", "labels": {}}),
        ..Case::default()
    };
    let budget = Budget::default();
    assert_eq!(case.found(&budget), Err(Refusal::TimedOut));
    assert!(budget.take_done() <= (1 << 20) + 64);
    // A time that is given counts in tenths of a second.
    let longer = Budget::of_timeout(Some(Duration::from_millis(150)));
    assert_eq!(case.found(&longer), Err(Refusal::TimedOut));
    let done = longer.take_done();
    assert!(done > 2 << 20 && done <= (2 << 20) + 64, "{done}");
    let short = Budget::new(1 << 20, 3);
    assert_eq!(case.found(&short), Err(Refusal::TimedOut));
    assert!(
        short.take_done() < 100,
        "an attempt's budget ends all of its nodes"
    );
}

/// A node with one device, and a claim of so many.
fn small(device: &Value, requests: usize) -> Case {
    let request = |at: usize| json!({"name": format!("r-{at}"), "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
    let requests: Vec<Value> = (0..requests).map(request).collect();
    let slice = json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": [device]}});
    Case {
        claims: vec![json!({"metadata": {"name": "x"}, "spec": {"devices": {"requests": requests}}})],
        classes: vec![json!({"metadata": {"name": "c"}})],
        slices: vec![slice],
        node: json!({"name": "n", "labels": {}}),
        ..Case::default()
    }
}

#[test]
fn nothing_is_looked_at_once_the_attempt_has_no_steps_left() {
    let spent = Budget::new(1 << 20, 0);
    let case = small(&json!({"name": "dev"}), 1);
    assert_eq!(
        (case.found(&spent), spent.take_done()),
        (Err(Refusal::TimedOut), 0)
    );
}

#[test]
fn requests_and_selectors_of_nodes_are_steps() {
    let far = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]});
    let slice = |at: usize| {
        json!({"metadata": {"name": format!("s-{at}")}, "spec": {"driver": "d", "nodeSelector": far,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 50}}})
    };
    let mut case = small(&json!({"name": "dev"}), 25);
    case.slices = (0..50).map(slice).collect();
    let (budget, available) = (Budget::default(), Available::default());
    assert_eq!(case.found_again(&budget, &available), Err(Refusal::Unsatisfied));
    assert!(budget.take_done() >= 75);
    // The next node without a device is answered by the first.
    assert_eq!(case.found_again(&budget, &available), Err(Refusal::Unsatisfied));
    assert_eq!(budget.take_done(), 50);
}

#[test]
fn candidate_takes_the_steps_of_what_it_is_compared_with() {
    let done = |device: Value, constraints: &Value| {
        let mut case = small(&device, 1);
        case.claims[0]["spec"]["devices"]["constraints"] = constraints.clone();
        let budget = Budget::default();
        assert!(case.found(&budget).is_ok());
        budget.take_done()
    };
    let plain = json!({"name": "dev", "attributes": {"a": {"int": 1}}});
    let few = done(plain.clone(), &json!([]));
    let names: Vec<String> = (0..32).map(|at| format!("r-{at}")).collect();
    let constraints = vec![json!({"requests": names, "matchAttribute": "d/a"}); 32];
    assert_eq!(done(plain.clone(), &json!(constraints)), few + 32 * 6);
    let mut rich = plain;
    let capacity = |at: usize| (format!("c-{at}"), json!({"value": "1"}));
    rich["capacity"] = Value::Object((0..32).map(capacity).collect());
    rich["taints"] = json!(vec![json!({"key": "k", "effect": "None"}); 8]);
    assert_eq!(done(rich, &json!([])), few + 32 * 4 + 8 / 4);
}

#[test]
fn device_with_shares_that_is_shared_no_more_is_in_use() {
    let mut case = small(&json!({"name": "dev"}), 1);
    assert!(case.found(&Budget::default()).is_ok());
    case.shared = vec!["d/p/dev".to_owned()];
    assert_eq!(case.found(&Budget::default()), Err(Refusal::Unsatisfied));
}

#[test]
fn reason_is_cut_where_a_tenants_words_are_long() {
    let long = Refusal::Broken("ä".repeat(1000)).message();
    assert_eq!(long.len(), 1024);
    let why = "class c: selector #0".to_owned();
    assert_eq!(Refusal::Broken(why.clone()).message(), why);
}

#[test]
fn pool_is_made_once_however_many_of_its_slices_change() {
    let mut devices = Devices::default();
    let set = |devices: &mut Devices, at: usize, generation: usize| {
        let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 100});
        let spec =
            json!({"driver": "d", "pool": pool, "nodeName": "n", "devices": [{"name": format!("d-{at}")}]});
        devices.set_slice(&format!("s-{at}"), Some(slice_of(&json!({"spec": spec}))));
    };
    (0..100).for_each(|at| set(&mut devices, at, 1));
    assert_eq!(devices.pools.renew(), 100, "each device once");
    assert_eq!(devices.pools.renew(), 0);
    set(&mut devices, 0, 2);
    assert_eq!(devices.pools.renew(), 100);
}

/// A case of one request on a node with a slice `own`, beside `foreign` of another node.
fn beside_another(node: &str, own: &Value, foreign: &Value, first: bool) -> Case {
    let slice = |node: &str, rest: &Value| {
        let mut slice = json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": node}});
        for (name, value) in rest.as_object().unwrap() {
            slice["spec"][name] = value.clone();
        }
        slice
    };
    let mut slices = vec![slice("n", own), slice("evil", foreign)];
    if first {
        slices.reverse();
    }
    Case {
        slices,
        node: json!({"name": node, "labels": {}}),
        ..small(&json!({}), 1)
    }
}

/// A slice with one device that takes all of a counter.
fn counted(room: &str) -> Value {
    let counters = |value: &str| json!({"memory": {"value": value}});
    json!({"sharedCounters": [{"name": "c", "counters": counters(room)}],
        "devices": [{"name": "dev", "consumesCounters": [{"counterSet": "c", "counters": counters("1")}]}]})
}

/// A node writes slices with its own name (decision 0126).
#[test]
fn pool_of_a_node_is_whole_and_valid_whatever_another_node_says_of_it() {
    let devices = |own: &Value, foreign: &Value| {
        [true, false].map(|first| {
            let found = beside_another("n", own, foreign, first).found(&Budget::default());
            found.map(|all| all.len())
        })
    };
    let pool = |generation: i64, count: i64| json!({"name": "p", "generation": generation, "resourceSliceCount": count});
    let (plain, other) = (json!([{"name": "dev"}]), json!([{"name": "other"}]));
    let own = json!({"devices": plain});
    let found = [
        devices(&own, &json!({"devices": plain})),
        devices(&own, &json!({"devices": other, "pool": pool(1, 7)})),
        devices(&own, &json!({"devices": plain, "pool": pool(1, 7)})),
        devices(&own, &json!({"devices": plain, "pool": pool(9, 1)})),
        devices(
            &own,
            &json!({"devices": [{"name": "x", "consumesCounters": [{"counterSet": "none"}]}]}),
        ),
        devices(&counted("1"), &counted("0")),
    ];
    assert!(found.iter().flatten().all(|own| *own == Ok(1)), "{found:?}");
}

#[test]
fn counters_of_a_node_are_not_those_of_another_generation_or_node() {
    let generation = |generation: i64| {
        let mut foreign = counted("0");
        foreign["pool"] = json!({"name": "p", "generation": generation, "resourceSliceCount": 1});
        foreign
    };
    for foreign in [generation(1), generation(9)] {
        let (budget, available) = (Budget::default(), Available::default());
        let there = beside_another("evil", &counted("1"), &foreign, false);
        assert_eq!(there.found_again(&budget, &available), Err(Refusal::Unsatisfied));
        let here = beside_another("n", &counted("1"), &foreign, false);
        let found = here.found_again(&budget, &available);
        assert_eq!(found.map(|all| all.len()), Ok(1), "{foreign}");
    }
}
