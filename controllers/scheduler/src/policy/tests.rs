//! Pods that are placed by a policy, and by the next one without a restart.

use super::*;
use crate::decision::Decision;
use crate::scheduler::{SCHEDULER_NAME, Scheduler};
use crate::tests::{make_node, make_pod};
use crate::usage::Sample;
use machinery_client::Projection;
use machinery_client::object::parse_header;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);

/// Nodes a, b and c; pods on them request three, two and no CPUs.
fn scheduler(policy: Policy) -> Scheduler {
    let mut scheduler = Scheduler::default();
    for name in ["c", "a", "b"] {
        scheduler.node_changed(name, Some(&make_node(&json!({"name": name}))), NOW);
    }
    for (node, cpu) in [("a", "3"), ("b", "2")] {
        let pod = make_pod(&format!("on-{node}"), json!({"cpu": cpu, "nodeName": node}));
        scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    }
    scheduler.set_policy(policy);
    scheduler
}

fn samples(milli_cpu: [i64; 3], gibibytes: [i64; 3]) -> Vec<Sample> {
    let all = ["a", "b", "c"].into_iter().zip(milli_cpu).zip(gibibytes);
    let sample = |((node, milli_cpu), gibibytes): ((&str, i64), i64)| Sample {
        node: node.into(),
        milli_cpu,
        memory: gibibytes << 30,
        taken_at: NOW,
    };
    all.map(sample).collect()
}

fn place(scheduler: &mut Scheduler, name: &str, mut spec: Value, random: u64) -> String {
    spec["schedulerName"] = SCHEDULER_NAME.into();
    let pod = make_pod(name, spec);
    scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    match scheduler.decide(NOW, random) {
        Some(Decision::Bind { node, .. }) => node.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Nodes of so many small pods, one after the other.
fn places(scheduler: &mut Scheduler, count: u64) -> Vec<String> {
    (0..count)
        .map(|at| place(scheduler, &format!("p{at}"), json!({"cpu": "100m"}), at))
        .collect()
}

#[test]
fn policy_by_turns_takes_the_nodes_by_name() {
    let mut scheduler = scheduler(Policy::RoundRobin);
    assert_eq!(places(&mut scheduler, 4), ["a", "b", "c", "a"]);
    // A node that the pod does not fit is passed over.
    assert_eq!(place(&mut scheduler, "large", json!({"cpu": "3"}), 0), "c");
    assert_eq!(place(&mut scheduler, "small", json!({"cpu": "100m"}), 0), "a");
    scheduler.node_changed("b", None, NOW);
    assert_eq!(place(&mut scheduler, "next", json!({"cpu": "100m"}), 0), "c");
}

#[test]
fn policy_by_chance_takes_any_node() {
    // Rows are as the nodes came.
    assert_eq!(places(&mut scheduler(Policy::Random), 4), ["c", "a", "b", "c"]);
}

#[test]
fn policy_by_requests_packs() {
    let mut packing = scheduler(Policy::MostAllocated);
    assert_eq!(place(&mut packing, "p", json!({"cpu": "500m"}), 0), "a");
    assert_eq!(place(&mut packing, "q", json!({"cpu": "1"}), 0), "b");
    assert_eq!(
        place(&mut scheduler(Policy::Default), "p", json!({"cpu": "500m"}), 0),
        "c"
    );
}

#[test]
fn policy_by_live_usage_looks_at_what_is_used() {
    let mut by_cpu = scheduler(Policy::LeastCpu);
    by_cpu.usage_changed(samples([100, 2000, 3000], [7, 6, 1]));
    assert_eq!(place(&mut by_cpu, "p", json!({"cpu": "500m"}), 0), "a");
    by_cpu.set_policy(Policy::LeastMemory);
    assert_eq!(place(&mut by_cpu, "q", json!({"cpu": "500m"}), 0), "c");
    // Half of a large node is less than nine tenths of a small one.
    let mut shares = scheduler(Policy::LeastCpu);
    let large = make_node(&json!({"name": "d", "cpu": "32"}));
    shares.node_changed("d", Some(&large), NOW);
    let mut all = samples([3600, 3600, 3600], [0, 0, 0]);
    all.push(Sample {
        node: "d".into(),
        milli_cpu: 16_000,
        memory: 0,
        taken_at: NOW,
    });
    shares.usage_changed(all);
    assert_eq!(place(&mut shares, "p", json!({"cpu": "100m"}), 0), "d");
}

#[test]
fn burst_by_live_usage_is_spread() {
    let mut scheduler = scheduler(Policy::LeastCpu);
    scheduler.usage_changed(samples([100, 150, 3000], [0, 0, 0]));
    assert_eq!(places(&mut scheduler, 4), ["a", "b", "a", "b"]);
}

#[test]
fn usage_that_nobody_knows_is_that_of_requests() {
    let mut scheduler = scheduler(Policy::LeastCpu);
    assert_eq!(scheduler.nodes_with_usage(NOW), 0);
    assert_eq!(place(&mut scheduler, "p", json!({"cpu": "100m"}), 0), "c");
    scheduler.usage_changed(samples([0, 0, 3000], [0, 0, 0]));
    assert_eq!(scheduler.nodes_with_usage(NOW), 3);
    assert_ne!(place(&mut scheduler, "q", json!({"cpu": "100m"}), 0), "c");
    scheduler.set_policy(Policy::RoundRobin);
    assert_eq!(scheduler.nodes_with_usage(NOW), 0, "nobody asks for it any more");
}

#[test]
fn policy_leaves_filters_and_other_profiles_alone() {
    let mut turns = scheduler(Policy::RoundRobin);
    let only = json!({"cpu": "100m", "nodeSelector": {"kubernetes.io/hostname": "c"}});
    assert_eq!(place(&mut turns, "p", only.clone(), 0), "c");
    let configuration = json!({"apiVersion": crate::config::API_VERSION, "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "other"}]});
    let configuration = crate::config::Configuration::read(&configuration).unwrap();
    let mut other = Scheduler::new(&configuration);
    assert!(
        !other.set_policy(Policy::RoundRobin),
        "there is no default profile"
    );
    assert!(turns.set_policy(Policy::Random));
}

#[test]
fn policy_object_is_read_by_its_name() {
    let read = |policy: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"default","uid":"u","resourceVersion":"1","generation":3}},"spec":{{"policy":"{policy}"}}}}"#
        );
        let (header, _) = parse_header(json.as_bytes()).unwrap();
        object::WantedPolicy::project(&header, json.as_bytes()).unwrap()
    };
    for (name, policy) in NAMES {
        assert_eq!((read(name).policy, policy.name()), (Ok(policy), name));
    }
    let unknown = read("Best");
    assert_eq!(unknown.policy, Err("Best".into()));
    assert_eq!((&*unknown.uid, unknown.generation), ("u", 3));
}
