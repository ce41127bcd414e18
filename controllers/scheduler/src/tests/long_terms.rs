//! Terms that a tenant makes many of cost in proportion to their number, and are bounded.

use super::*;
use crate::preemption::MAX_STEPS;

const HOSTNAME: &str = "kubernetes.io/hostname";

fn world_of(nodes: usize, pod: &Value) -> World {
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number}")).collect();
    let mut world = World::new(names.iter().map(|name| json!({"name": name})).collect());
    for name in &names {
        world.runs(pod.clone(), name);
    }
    world
}

/// Steps of an attempt, and the nodes where preemption may help.
fn attempt_on(world: &mut World, pod: &Arc<PodInfo>) -> (Attempt, Result<usize, FitError>) {
    let attempt = Attempt::new(pod);
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    (attempt, placed)
}

/// A pod to be with pods that match each of so many selectors, at topologies of one key or of as many.
fn together(terms: usize, side: &str, keys: usize) -> Value {
    let terms: Vec<Value> = (0..terms)
        .map(|number| {
            let expression = json!({"key": "app", "operator": "NotIn", "values": [format!("v{number}")]});
            let key = if keys == 1 {
                HOSTNAME.to_owned()
            } else {
                format!("key-{}", number % keys)
            };
            json!({"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}})
        })
        .collect();
    json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn terms_of_affinity_cost_in_proportion() {
    const NODES: usize = 50;
    for terms in [100, 1_000] {
        let mut world = world_of(NODES, &json!({"labels": {"app": "x"}}));
        let pod = make_pod("p", together(terms, "podAffinity", 1));
        let (attempt, placed) = attempt_on(&mut world, &pod);
        assert!(placed.is_ok());
        // The counter compares each pod with each term once; terms of one key share a column and its sums.
        let once = terms * NODES + pod.term_steps();
        let steps = attempt.steps();
        assert!(
            (once..once + 2 * terms + 200).contains(&steps),
            "{terms}: {steps} of {once}"
        );
        assert_eq!(world.nodes.counts().uses(), 1);
    }
}

#[test]
fn terms_beyond_what_an_attempt_may_make_are_refused() {
    let mut world = world_of(900, &json!({}));
    for (side, keys) in [("podAffinity", 1), ("podAntiAffinity", 19_000)] {
        let (_, placed) = attempt_on(&mut world, &make_pod("p", together(19_000, side, keys)));
        let expected = "0/900 nodes are available: pod has too many affinity terms to be placed among 900 nodes and \
                        900 pods: 19000.";
        let message = placed.unwrap_err().message();
        assert!(message.starts_with(expected.trim_end_matches('.')), "{message}");
        assert_eq!(world.nodes.topologies(), 0);
        assert_eq!(world.nodes.counts().kept().0, 0);
    }
}

#[test]
fn spread_constraints_beyond_what_an_attempt_may_make_are_refused() {
    let mut world = world_of(900, &json!({}));
    let mut spec = spread("a", "ScheduleAnyway");
    let constraint = spec["topologySpreadConstraints"][0].clone();
    let keyed = |number: usize| {
        let mut constraint = constraint.clone();
        constraint["topologyKey"] = format!("key-{number}").into();
        constraint
    };
    spec["topologySpreadConstraints"] = (0..19_000).map(keyed).collect();
    let (_, placed) = attempt_on(&mut world, &make_pod("p", spec));
    let expected = "0/900 nodes are available: pod has too many topology spread constraints to be placed among 900 \
                    nodes and 900 pods: 19000";
    let message = placed.unwrap_err().message();
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(world.nodes.topologies(), 0);
}

/// Required node affinity of so many terms, of which the last matches. None can be looked up.
fn last_of(terms: usize) -> Value {
    let term = |number: usize| {
        let key = if number == terms { "none" } else { HOSTNAME };
        json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]})
    };
    let terms: Vec<Value> = (1..=terms).map(term).collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn node_affinity_is_compared_once_a_node_in_an_attempt() {
    const NODES: usize = 60;
    const TERMS: usize = 1_000;
    let mut world = world_of(NODES, &json!({"cpu": "2", "labels": {"app": "x"}}));
    let mut spec = spread(HOSTNAME, "DoNotSchedule");
    spec["cpu"] = "3".into();
    spec["priority"] = 5.into();
    spec["affinity"] = last_of(TERMS);
    let pod = make_pod("p", spec);
    let (attempt, placed) = attempt_on(&mut world, &pod);
    let Err(FitError::Unfit { resolvable, .. }) = placed else {
        panic!("{placed:?}")
    };
    assert_eq!(resolvable.len(), NODES);
    let budgets = Budgets::new();
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &budgets,
    };
    let mut dry_run = DryRun::begin(
        &pod,
        &world.nodes,
        &resolvable,
        0,
        DefaultPreemptionArgs::default(),
    )
    .unwrap();
    assert!(dry_run.advance(&attempt, &mut world.nodes, around, usize::MAX));
    assert_eq!(dry_run.end().unwrap().victims.len(), 1);
    let (steps, compared) = (attempt.steps(), NODES * TERMS * 2);
    assert!((compared..compared + compared / 4).contains(&steps), "{steps}");
}

#[test]
fn dry_run_adds_what_changed_to_the_domains() {
    // Two pods in zone 1, one in zone 2: the node of zone 1 has to give up both, though one would make room.
    let mut world = World::new(json!([
        {"name": "a", "zone": "1"}, {"name": "b", "zone": "2", "taints": [{"key": "t", "effect": "NoSchedule"}]}]));
    for _ in 0..2 {
        world.runs(json!({"cpu": "2", "labels": {"app": "x"}}), "a");
    }
    let mut spec = spread("topology.kubernetes.io/zone", "DoNotSchedule");
    spec["cpu"] = "2".into();
    spec["priority"] = 5.into();
    let (_, victims) = preempt(&mut world, &make_pod("p", spec.clone()), &Budgets::new()).unwrap();
    assert_eq!(victims.len(), 2);
    world.runs(json!({"labels": {"app": "x"}}), "b");
    let (_, victims) = preempt(&mut world, &make_pod("q", spec), &Budgets::new()).unwrap();
    assert_eq!(victims.len(), 1);
}

#[test]
fn domains_are_summed_once_in_an_attempt() {
    const NODES: usize = 160;
    const CONSTRAINTS: usize = 32;
    let mut world = world_of(NODES, &json!({"cpu": "2", "labels": {"app": "x"}}));
    let mut spec = spread(HOSTNAME, "DoNotSchedule");
    let constraint = spec["topologySpreadConstraints"][0].clone();
    spec["topologySpreadConstraints"] = vec![constraint; CONSTRAINTS].into();
    spec["cpu"] = "3".into();
    spec["priority"] = 5.into();
    let pod = make_pod("p", spec);
    let (attempt, placed) = attempt_on(&mut world, &pod);
    let Err(FitError::Unfit { resolvable, .. }) = placed else {
        panic!("{placed:?}")
    };
    attempt.take_steps();
    let budgets = Budgets::new();
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &budgets,
    };
    let mut dry_run = DryRun::begin(
        &pod,
        &world.nodes,
        &resolvable,
        0,
        DefaultPreemptionArgs::default(),
    )
    .unwrap();
    assert!(dry_run.advance(&attempt, &mut world.nodes, around, usize::MAX));
    let checks = 2 * (NODES - dry_run.left());
    assert_eq!(checks, 200);
    // To sum them for a check would take 640 steps.
    assert!(attempt.steps() < checks * 3 * CONSTRAINTS, "{}", attempt.steps());
}

#[test]
fn dry_run_ends_after_its_steps() {
    const NODES: usize = 1_000;
    const TERMS: usize = 4_000;
    let mut world = world_of(NODES, &json!({"cpu": "4"}));
    let mut spec = together(TERMS, "podAntiAffinity", 1);
    spec["cpu"] = "4".into();
    spec["priority"] = 5.into();
    let pod = make_pod("p", spec);
    let (attempt, _) = attempt_on(&mut world, &pod);
    attempt.take_steps();
    let all: Vec<usize> = (0..NODES).collect();
    let budgets = Budgets::new();
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &budgets,
    };
    let mut dry_run = DryRun::begin(&pod, &world.nodes, &all, 0, DefaultPreemptionArgs::default()).unwrap();
    assert!(dry_run.advance(&attempt, &mut world.nodes, around, usize::MAX));
    assert!(dry_run.left() > NODES - 80, "{}", dry_run.left());
    assert!(
        attempt.steps() < MAX_STEPS + (NODES * TERMS) / 4,
        "{}",
        attempt.steps()
    );
    assert!(dry_run.end().is_ok());
}

#[test]
fn large_shape_counts_its_terms_and_is_not_evaluated_again() {
    const NODES: usize = 40;
    let mut world = world_of(NODES, &json!({}));
    let spec = |app: &str| {
        let mut affinity = last_of(1_000);
        let term = json!({"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}});
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = vec![term; 500].into();
        json!({"labels": {"app": app}, "cpu": "3", "affinity": affinity})
    };
    let (attempt, placed) = attempt_on(&mut world, &make_pod("p", spec("1")));
    assert!(placed.is_ok());
    let expected = NODES * (2_000 + 1_000);
    let steps = attempt.steps();
    assert!((expected..expected + expected / 5).contains(&steps), "{steps}");
    // A label is poked, and others are placed in between.
    assert!(world.place(&make_pod("o", json!({}))).is_ok());
    let (attempt, placed) = attempt_on(&mut world, &make_pod("p", spec("2")));
    assert!(placed.is_ok());
    assert!(attempt.steps() < expected / 8, "{}", attempt.steps());
}

#[test]
fn large_shapes_are_told_apart() {
    let mut world = World::new(json!([{"name": "a", "cpu": "2"}, {"name": "b", "cpu": "8"}]));
    world.runs(json!({"cpu": "6"}), "b");
    for (cpu, fits) in [("1", true), ("4", false), ("2", true)] {
        let pod = make_pod("p", json!({"cpu": cpu, "affinity": last_of(1_000)}));
        assert_eq!(world.place(&pod).is_ok(), fits, "{cpu}");
    }
}

/// Answer of the filter of hard spread constraints for a node.
fn filtered(attempt: &Attempt, nodes: &NodeTable, node: usize) -> bool {
    let rows = default_plugins().filter;
    let row = rows
        .iter()
        .find(|row| row.plugin.name() == "PodTopologySpread")
        .unwrap();
    let filter = row.plugin.filter(attempt.on(nodes)).unwrap();
    filter.check(node).is_ok()
}

#[test]
fn domains_with_what_changed_are_those_summed_afresh() {
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let nodes: Vec<Value> = (0..1 + random(5))
            .map(|number| json!({"name": format!("n{number}"), "zone": format!("z{}", random(4))}))
            .collect();
        let mut world = World::new(nodes.clone().into());
        for node in &nodes {
            for _ in 0..random(4) {
                world.runs(json!({"labels": {"app": "x"}}), node["name"].as_str().unwrap());
            }
        }
        let mut spec = spread("topology.kubernetes.io/zone", "DoNotSchedule");
        spec["topologySpreadConstraints"][0]["maxSkew"] = (1 + random(2)).into();
        spec["topologySpreadConstraints"][0]["minDomains"] = (1 + random(4)).into();
        let pod = make_pod("p", spec);
        let attempt = Attempt::new(&pod);
        let _ = world
            .algorithm
            .place(&attempt, &mut world.nodes, &world.nominations, 0);
        for node in 0..nodes.len() {
            let mut taken = Vec::new();
            while !world.nodes.pods[node].is_empty() {
                taken.push(world.nodes.take_from_row(node, 0));
                let afresh = filtered(&Attempt::new(&pod), &world.nodes, node);
                assert_eq!(filtered(&attempt, &world.nodes, node), afresh);
            }
            taken.iter().for_each(|pod| world.nodes.add_to_row(node, pod));
            // Pods nominated to the node.
            let promised = make_pod("promised", json!({"labels": {"app": "x"}}));
            for count in 1..4 {
                world.nodes.add_to_row(node, &promised);
                let afresh = filtered(&Attempt::new(&pod), &world.nodes, node);
                assert_eq!(filtered(&attempt, &world.nodes, node), afresh, "{count}");
            }
            for _ in 1..4 {
                let last = world.nodes.pods[node].len() - 1;
                world.nodes.take_from_row(node, last);
            }
        }
    }
}
