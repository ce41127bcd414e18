//! A dry run of preemption is bounded as upstream's, and done in steps between which others have their turn.

use super::*;
use crate::scheduler::SCHEDULER_NAME;

/// A number of full nodes, and a pod that others would have to go for; it is not to be with pods of the app `x`.
fn full_nodes(count: usize) -> (World, Arc<PodInfo>) {
    let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
    let mut world = World::new(names.iter().map(|name| json!({"name": name})).collect());
    for name in &names {
        world.runs(json!({"cpu": "4"}), name);
    }
    (world, make_pod("p", preemptor()))
}

fn preemptor() -> Value {
    preemptor_of(16)
}

/// A preemptor with so many terms of anti-affinity, all alike.
fn preemptor_of(terms: usize) -> Value {
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}});
    let terms = vec![term; terms];
    json!({"cpu": "4", "priority": 5, "schedulerName": SCHEDULER_NAME,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

/// Nodes that a dry run on so many looks at, with a budget that some victims break.
fn looked_at(count: usize, protected: usize) -> usize {
    let (mut world, pod) = full_nodes(count);
    for number in 0..protected {
        world
            .nodes
            .remove_pod(&ObjectKey::new("ns", format!("running-{}", number + 1)));
        world.runs(
            json!({"cpu": "4", "labels": {"app": "kept"}}),
            &format!("n{number}"),
        );
    }
    let budget = Budget {
        selector: Some(serde_json::from_value(json!({"matchLabels": {"app": "kept"}})).unwrap()),
        ..Budget::default()
    };
    let attempt = Attempt::new(&pod);
    let resolvable: Vec<usize> = (0..count).collect();
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &Budgets::from([(ObjectKey::new("ns", "b"), budget)]),
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
    count - dry_run.left()
}

#[test]
fn dry_run_ends_with_the_candidates_that_upstream_asks_for() {
    assert_eq!(looked_at(90, 0), 90);
    assert_eq!(looked_at(150, 0), 100);
    assert_eq!(looked_at(1_050, 0), 105);
    // One that breaks no budget is among them.
    assert_eq!(looked_at(150, 130), 131);
    assert_eq!(looked_at(150, 150), 150);
}

#[test]
fn dry_run_begins_with_another_node_each_time() {
    let (mut world, pod) = full_nodes(120);
    let resolvable: Vec<usize> = (0..120).collect();
    let budgets = Budgets::new();
    for (random, expected) in [(0, 0), (7, 7), (119, 119), (127, 7)] {
        let attempt = Attempt::new(&pod);
        let around = Surroundings {
            algorithm: &world.algorithm,
            nominations: &world.nominations,
            budgets: &budgets,
        };
        let mut dry_run = DryRun::begin(
            &pod,
            &world.nodes,
            &resolvable,
            random,
            DefaultPreemptionArgs::default(),
        )
        .unwrap();
        assert!(!dry_run.advance(&attempt, &mut world.nodes, around, 0));
        assert_eq!(dry_run.end().unwrap().node, expected);
    }
}

#[test]
fn long_dry_run_goes_on_in_the_next_burst() {
    const NODES: usize = 1_000;
    let mut scheduler = Scheduler::default();
    for number in 0..NODES {
        let name = format!("n{number}");
        scheduler.node_changed(&name, Some(&make_node(&json!({"name": name}))), Duration::ZERO);
        let pod = make_pod(
            &format!("r{number}"),
            json!({"cpu": "4", "nodeName": name, "labels": {"app": "x"}}),
        );
        scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    }
    let pod = make_pod("p", preemptor());
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    let mut bursts = 1;
    let decisions = loop {
        let decisions = scheduler.decide_burst(Duration::ZERO, 100, || 0);
        if !scheduler.is_in_dry_run() {
            break decisions;
        }
        assert!(decisions.is_empty() && scheduler.has_work(Duration::ZERO));
        bursts += 1;
    };
    let [Decision::Reject { preemption, .. }] = &decisions[..] else {
        panic!("{decisions:?}")
    };
    assert_eq!(preemption.as_ref().unwrap().victims.len(), 1);
    // A hundred nodes are checked, and each check sums the pods of all of them for each term.
    assert!((2..=3).contains(&bursts), "{bursts}");
}

/// More pods are moved than the table remembers changes.
#[test]
fn dry_run_leaves_the_kept_evaluations_as_they_were() {
    const NODES: usize = 100;
    const PODS: usize = 100;
    let names: Vec<String> = (0..NODES).map(|number| format!("n{number}")).collect();
    let mut world = World::new(
        names
            .iter()
            .map(|name| json!({"name": name, "pods": "200"}))
            .collect(),
    );
    for name in &names {
        (0..PODS).for_each(|_| drop(world.runs(json!({"cpu": "40m"}), name)));
    }
    let pod = make_pod("p", json!({"cpu": "4", "priority": 5}));
    let place = |world: &mut World| {
        let attempt = Attempt::new(&pod);
        let placed = world
            .algorithm
            .place(&attempt, &mut world.nodes, &world.nominations, 0);
        (placed.unwrap_err(), attempt.steps())
    };
    let (unfit, first) = place(&mut world);
    let (attempt, resolvable) = (Attempt::new(&pod), (0..NODES).collect::<Vec<usize>>());
    let budgets = Budgets::new();
    let around = Surroundings {
        algorithm: &world.algorithm,
        nominations: &world.nominations,
        budgets: &budgets,
    };
    let args = DefaultPreemptionArgs::default();
    let before = world.nodes.now();
    let mut dry_run = DryRun::begin(&pod, &world.nodes, &resolvable, 0, args).unwrap();
    assert!(dry_run.advance(&attempt, &mut world.nodes, around, usize::MAX));
    assert_eq!(dry_run.end().unwrap().victims.len(), PODS);
    assert_eq!(world.nodes.now(), before);
    let (unfit_again, second) = place(&mut world);
    assert_eq!(unfit_again, unfit);
    // No row is looked at again.
    assert_eq!(first - second, NODES, "{first} {second}");
}

#[test]
fn counters_made_for_a_pod_are_counted_among_its_steps() {
    let steps = |pods: usize| {
        let mut world = World::new(json!([{"name": "a", "pods": "100000"}]));
        for _ in 0..pods {
            world.runs(json!({}), "a");
        }
        let term = json!({"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        steps_of(&mut world, &make_pod("p", json!({"affinity": affinity})))
    };
    assert_eq!(steps(1_000), steps(0) + 1_000);
}

/// Steps of placing the pod.
fn steps_of(world: &mut World, pod: &Arc<PodInfo>) -> usize {
    let attempt = Attempt::new(pod);
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    assert!(placed.is_ok());
    attempt.steps()
}

/// A counter that is made anew once looked at all pods of the namespace.
#[test]
fn counter_made_anew_looks_at_the_pods_that_may_count() {
    let mut world = World::new(json!([{"name": "a", "pods": "100000"}, {"name": "b"}]));
    for number in 0..1_000 {
        world.runs(json!({"labels": {"app": format!("app-{}", number % 100)}}), "a");
    }
    // Labels beyond those that are filed.
    let mut many = json!({"app": "app-7"});
    for number in 0..20 {
        many[format!("l{number}")] = "v".into();
    }
    world.runs(json!({"labels": many}), "a");
    let of = |app: &str| {
        let term =
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        make_pod("p", json!({"affinity": affinity}))
    };
    let none = steps_of(&mut world, &of("unknown"));
    assert!(none < 100, "{none}");
    for app in ["app-7", "app-8"] {
        let steps = steps_of(&mut world, &of(app));
        assert!(steps <= none + 12, "{steps}, {none} where none counts");
    }
    let attempt = Attempt::new(&of("app-7"));
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    assert_eq!(&*world.nodes.names[placed.unwrap()], "b");
}
