//! Namespaces take turns among pods of one priority, by what their attempts cost.

use super::*;
use crate::node_terms::NodeTermIndex;
use crate::object::{NodeSelector, NodeSelectorTerm};
use crate::scheduler::SCHEDULER_NAME;
use crate::selector::node_term_matches;

fn pod_of(namespace: &str, name: &str, mut spec: Value) -> Arc<PodInfo> {
    spec["schedulerName"] = SCHEDULER_NAME.into();
    spec["containers"] = json!([{"name": "c"}]);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}/{name}")}, "spec": spec
    }))
    .unwrap();
    Arc::new(PodInfo::new(pod))
}

/// Pods in the order in which they are tried, each attempt of namespace `a` taking so many steps.
fn order(queue: &mut Queue, steps_of_a: usize) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(next) = queue.pop(Duration::ZERO) {
        let key = &next.pod.key;
        let steps = if key.namespace == "a" { steps_of_a } else { 0 };
        order.push(format!("{}/{}", key.namespace, key.name));
        queue.charge(&next.pod, steps);
    }
    order
}

#[track_caller]
fn check_order(pods: &[(&str, &str, i32)], steps_of_a: usize, expected: &[&str]) {
    let mut queue = Queue::default();
    for (namespace, name, priority) in pods {
        queue.set(
            pod_of(namespace, name, json!({"priority": priority})),
            None,
            Duration::ZERO,
        );
    }
    assert_eq!(order(&mut queue, steps_of_a), expected);
}

#[test]
fn turns_of_namespaces_begin_with_who_waits_longest() {
    let pods = [
        ("a", "1", 0),
        ("a", "2", 0),
        ("a", "3", 0),
        ("b", "1", 0),
        ("b", "2", 0),
    ];
    check_order(&pods, 0, &["a/1", "b/1", "a/2", "b/2", "a/3"]);
}

#[test]
fn turns_are_as_long_as_attempts_cost() {
    let pods = [
        ("a", "1", 0),
        ("a", "2", 0),
        ("b", "1", 0),
        ("b", "2", 0),
        ("b", "3", 0),
    ];
    check_order(&pods, 1_000_000, &["a/1", "b/1", "b/2", "b/3", "a/2"]);
}

#[test]
fn priority_goes_before_turns() {
    let pods = [("b", "1", 0), ("a", "1", 0), ("a", "2", 7), ("a", "3", 7)];
    check_order(&pods, 1_000_000, &["a/2", "a/3", "b/1", "a/1"]);
}

#[test]
fn turns_count_what_was_charged_while_others_wait() {
    let mut queue = Queue::default();
    for number in 0..3 {
        queue.set(pod_of("b", &number.to_string(), json!({})), None, Duration::ZERO);
    }
    // One pod of `a` at a time: each is charged to it although none of it waits then.
    let mut order = Vec::new();
    for number in 0..4 {
        queue.set(pod_of("a", &number.to_string(), json!({})), None, Duration::ZERO);
        let next = queue.pop(Duration::ZERO).unwrap().pod;
        let steps = if next.key.namespace == "a" { 1_000 } else { 0 };
        order.push(next.key.namespace.clone());
        queue.charge(&next, steps);
    }
    assert_eq!(order, ["b", "a", "b", "b"]);
}

#[test]
fn turns_owe_nothing_to_who_comes_late() {
    let mut queue = Queue::default();
    for number in 0..1_000 {
        queue.set(pod_of("b", &number.to_string(), json!({})), None, Duration::ZERO);
    }
    for _ in 0..500 {
        let next = queue.pop(Duration::ZERO).unwrap().pod;
        queue.charge(&next, 0);
    }
    for number in 0..1_000 {
        queue.set(pod_of("a", &number.to_string(), json!({})), None, Duration::ZERO);
    }
    let order = order(&mut queue, 0);
    let of_a = order[..100].iter().filter(|pod| pod.starts_with("a/")).count();
    assert!((49..=51).contains(&of_a), "{of_a}");
}

/// A pod whose required affinity takes long to compare, since no term can be looked up.
fn dear(name: &str) -> Arc<PodInfo> {
    let term = |number: usize| {
        json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "DoesNotExist"},
        {"key": format!("k{number}"), "operator": "DoesNotExist"}]})
    };
    let terms: Vec<Value> = (0..2_000).map(term).collect();
    pod_of(
        "a",
        name,
        json!({"affinity": {"nodeAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}),
    )
}

#[test]
fn dear_pods_of_a_namespace_keep_nobody_waiting() {
    let mut scheduler = Scheduler::default();
    for number in 0..50 {
        let node = make_node(&json!({"name": format!("n{number}")}));
        scheduler.node_changed(&format!("n{number}"), Some(&node), Duration::ZERO);
    }
    for number in 0..20 {
        let pod = dear(&number.to_string());
        scheduler.pod_changed(&pod.key.clone(), Some(&pod), Duration::ZERO);
    }
    let pods: Vec<_> = (0..30)
        .map(|number| pod_of("b", &number.to_string(), json!({})))
        .collect();
    for pod in &pods {
        scheduler.pod_changed(&pod.key, Some(pod), Duration::ZERO);
    }
    let mut rejected = 0;
    let mut bound = 0;
    while bound < pods.len() {
        assert_eq!(
            scheduler.is_heavy_next(Duration::ZERO),
            bound == 0 && rejected == 0
        );
        for decision in scheduler.decide_burst(Duration::ZERO, 16, || 0) {
            match decision {
                Decision::Bind { pod, .. } => {
                    assert_eq!(pod.key.namespace, "b");
                    bound += 1;
                }
                Decision::Reject { .. } => rejected += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(rejected, 1, "attempts of the other namespace");
    assert!(scheduler.is_heavy_next(Duration::ZERO));
}

fn random_terms(random: &mut impl FnMut(u64) -> u64) -> Vec<Value> {
    let values = |random: &mut dyn FnMut(u64) -> u64, long: bool| -> Vec<String> {
        let count = if long { 20 } else { 1 + random(2) };
        (0..count)
            .map(|_| random(if long { 40 } else { 4 }).to_string())
            .collect()
    };
    let requirement = |random: &mut dyn FnMut(u64) -> u64, key: String| {
        let operator =
            ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"][usize::try_from(random(6)).unwrap()];
        let long = operator.ends_with("In") && random(3) == 0;
        let values = match operator {
            "In" | "NotIn" => values(random, long),
            "Gt" | "Lt" => vec![random(4).to_string()],
            _ => Vec::new(),
        };
        json!({"key": key, "operator": operator, "values": values})
    };
    (0..random(6))
        .map(|_| {
            let labels: Vec<Value> = (0..random(3))
                .map(|_| {
                    let key = format!("k{}", random(3));
                    requirement(random, key)
                })
                .collect();
            let fields: Vec<Value> = (0..random(2))
                .map(|_| {
                    let operator = ["In", "NotIn"][usize::try_from(random(2)).unwrap()];
                    let key = if random(8) == 0 {
                        "metadata.uid"
                    } else {
                        "metadata.name"
                    };
                    json!({"key": key, "operator": operator, "values": [format!("n{}", random(3))]})
                })
                .collect();
            json!({"matchExpressions": labels, "matchFields": fields})
        })
        .collect()
}

#[test]
fn terms_looked_up_are_those_that_match() {
    let mut seed = 11_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..5_000 {
        let terms = random_terms(&mut random);
        let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        let terms: &[NodeSelectorTerm] = &selector.node_selector_terms;
        let index = NodeTermIndex::of(terms.iter());
        let mut labels = json!({});
        for key in 0..3 {
            if random(2) == 0 {
                labels[format!("k{key}")] = random(4).to_string().into();
            }
        }
        let node = make_node(&json!({"name": format!("n{}", random(3)), "labels": labels}));
        let (name, labels) = (&node.metadata.name, &node.metadata.labels);
        let mut found: Vec<usize> = index
            .candidates(name, labels)
            .filter(|id| index.matches(*id, &terms[*id], name, labels))
            .collect();
        found.sort_unstable();
        let matching = (0..terms.len()).filter(|id| node_term_matches(&terms[*id], name, labels));
        assert_eq!(found, matching.collect::<Vec<_>>(), "{selector:?} {labels:?}");
    }
}

#[test]
fn terms_that_name_labels_are_looked_up() {
    const NODES: usize = 50;
    for (operator, values) in [
        ("In", json!(["x", "y"])),
        ("Gt", json!(["1"])),
        ("Exists", json!([])),
    ] {
        let nodes: Vec<Value> = (0..NODES)
            .map(|number| json!({"name": format!("n{number}")}))
            .collect();
        let mut world = World::new(nodes.into());
        let term = |number: usize| {
            json!({"matchExpressions":
            [{"key": format!("k{number}"), "operator": operator, "values": values}]})
        };
        let terms: Vec<Value> = (0..5_000).map(term).collect();
        let weighted: Vec<Value> = (0..5_000)
            .map(|number| json!({"weight": 1, "preference": term(number)}))
            .collect();
        let last = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]});
        let required: Vec<Value> = terms.into_iter().chain([last]).collect();
        let spec = json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required},
            "preferredDuringSchedulingIgnoredDuringExecution": weighted}}});
        let pod = make_pod("p", spec);
        let attempt = Attempt::new(&pod);
        let placed = world
            .algorithm
            .place(&attempt, &mut world.nodes, &world.nominations, 0);
        assert!(placed.is_ok(), "{placed:?}");
        // Decoded, filed, hashed: nothing of it for each node.
        assert!(attempt.steps() < 12 * 10_000, "{}", attempt.steps());
    }
}

#[test]
fn long_lists_of_values_are_looked_up() {
    const NODES: usize = 100;
    let nodes: Vec<Value> = (0..NODES)
        .map(|number| json!({"name": format!("n{number}")}))
        .collect();
    for (operator, fits) in [("In", false), ("NotIn", true)] {
        let mut world = World::new(nodes.clone().into());
        let values: Vec<String> = (0..20_000).map(|number| format!("v{number}")).collect();
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": values}]});
        let spec = json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}});
        let pod = make_pod("p", spec);
        let attempt = Attempt::new(&pod);
        let placed = world
            .algorithm
            .place(&attempt, &mut world.nodes, &world.nominations, 0);
        assert_eq!(placed.is_ok(), fits);
        assert!(attempt.steps() < 5 * 20_000, "{}", attempt.steps());
    }
}
