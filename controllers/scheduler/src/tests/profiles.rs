//! Effects of a profile's arguments and plugins.

use super::*;
use crate::config::{API_VERSION, Configuration};
use crate::profile::Profiles;
use crate::scheduler::SCHEDULER_NAME;

pub(super) fn configuration(rest: Value) -> Configuration {
    let mut all = json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"});
    for (key, value) in rest.as_object().unwrap() {
        all[key] = value.clone();
    }
    Configuration::read(&all).unwrap()
}

/// A profile with arguments of one plugin, whose score alone counts where `alone`.
pub(super) fn with_args(plugin: &str, args: Value, alone: bool) -> Configuration {
    let score = match alone {
        true => json!({"disabled": [{"name": "*"}], "enabled": [{"name": plugin}]}),
        false => json!({}),
    };
    let profile = json!({"plugins": {"score": score}, "pluginConfig": [{"name": plugin, "args": args}]});
    configuration(json!({"profiles": [profile]}))
}

/// A scheduler with nodes, and pods that run on them.
pub(super) fn scheduler(configuration: &Configuration, nodes: Value, running: &[(&str, Value)]) -> Scheduler {
    let mut scheduler = Scheduler::new(configuration);
    for node in nodes.as_array().unwrap() {
        let node = make_node(node);
        scheduler.node_changed(&node.metadata.name, Some(&node), Duration::ZERO);
    }
    for (at, (node, spec)) in running.iter().enumerate() {
        let mut spec = spec.clone();
        spec["nodeName"] = (*node).into();
        let pod = make_pod(&format!("running-{at}"), spec);
        scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    }
    scheduler
}

fn place(scheduler: &mut Scheduler, mut spec: Value) -> Result<String, String> {
    if spec["schedulerName"].is_null() {
        spec["schedulerName"] = SCHEDULER_NAME.into();
    }
    let pod = make_pod("p", spec);
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    let decided = scheduler.decide(Duration::ZERO, 0);
    let placed = match decided {
        Some(Decision::Bind { node, .. }) => Ok(node.to_string()),
        Some(Decision::Reject { message, .. }) => Err(message),
        other => panic!("{other:?}"),
    };
    scheduler.pod_changed(&pod.key, None, Duration::ZERO);
    placed
}

fn two() -> Value {
    json!([{"name": "a"}, {"name": "b"}])
}

fn strategy(kind: &str, rest: Value) -> Configuration {
    let mut strategy = json!({"type": kind});
    for (key, value) in rest.as_object().unwrap() {
        strategy[key] = value.clone();
    }
    with_args("NodeResourcesFit", json!({"scoringStrategy": strategy}), true)
}

#[test]
fn strategy_of_a_profile_rates_nodes() {
    let running = [("a", json!({"cpu": "2"}))];
    let check = |configuration: Configuration, expected: &str| {
        let mut scheduler = scheduler(&configuration, two(), &running);
        assert_eq!(
            place(&mut scheduler, json!({"cpu": "1"})),
            Ok(expected.to_owned())
        );
    };
    check(strategy("LeastAllocated", json!({})), "b");
    check(strategy("MostAllocated", json!({})), "a");
    let shape = |at_full: i64| {
        let points =
            json!([{"utilization": 0, "score": 10 - at_full}, {"utilization": 100, "score": at_full}]);
        strategy(
            "RequestedToCapacityRatio",
            json!({"requestedToCapacityRatio": {"shape": points}}),
        )
    };
    check(shape(10), "a");
    check(shape(0), "b");
}

#[test]
fn resources_of_a_strategy_are_weighed() {
    let nodes = json!([{"name": "a", "gpu": "4"}, {"name": "b", "gpu": "8"}]);
    let gpu = json!({"containers": [{"resources": {"requests": {"example.com/gpu": "2", "cpu": "1"}}}]});
    let of = |resources: Value| strategy("MostAllocated", json!({"resources": resources}));
    let mut by_gpu = scheduler(&of(json!([{"name": "example.com/gpu"}])), nodes.clone(), &[]);
    assert_eq!(place(&mut by_gpu, gpu.clone()), Ok("a".to_owned()));
    // The busier CPU of the other node outweighs it.
    let weights = json!([{"name": "example.com/gpu", "weight": 1}, {"name": "cpu", "weight": 100}]);
    let running = [("b", json!({"cpu": "1"}))];
    let mut by_cpu = scheduler(&of(weights), nodes, &running);
    assert_eq!(place(&mut by_cpu, gpu), Ok("b".to_owned()));
}

#[test]
fn ignored_resources_are_not_looked_for() {
    let wants = json!({"containers": [{"resources": {"requests": {"example.com/gpu": "1"}}}]});
    let mut default = scheduler(&Configuration::default(), two(), &[]);
    assert!(place(&mut default, wants.clone()).is_err());
    for args in [
        json!({"ignoredResources": ["example.com/gpu"]}),
        json!({"ignoredResourceGroups": ["example.com"]}),
    ] {
        let mut scheduler = scheduler(&with_args("NodeResourcesFit", args, false), two(), &[]);
        assert!(place(&mut scheduler, wants.clone()).is_ok());
    }
    let other = with_args(
        "NodeResourcesFit",
        json!({"ignoredResources": ["example.com/other"]}),
        false,
    );
    assert!(place(&mut scheduler(&other, two(), &[]), wants).is_err());
}

#[test]
fn balance_is_of_the_resources_that_the_profile_names() {
    let nodes = json!([{"name": "a", "gpu": "2"}, {"name": "b", "gpu": "8"}]);
    let args = json!({"resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]});
    let configuration = with_args("NodeResourcesBalancedAllocation", args, true);
    // A quarter of the CPU: a quarter of the devices of the second node.
    let wants = json!({"containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}]});
    let mut scheduler = scheduler(&configuration, nodes, &[]);
    assert_eq!(place(&mut scheduler, wants), Ok("b".to_owned()));
}

#[test]
fn affinity_that_a_profile_adds_is_every_pods() {
    let term =
        |value: &str| json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]});
    let nodes = json!([{"name": "a"}, {"name": "b", "labels": {"disk": "ssd"}}]);
    let args = |affinity: Value| with_args("NodeAffinity", json!({"addedAffinity": affinity}), false);
    let required = |value: &str| {
        args(json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term(value)]}}))
    };
    let mut on_disk = scheduler(&required("ssd"), nodes.clone(), &[("b", json!({"cpu": "3"}))]);
    assert_eq!(place(&mut on_disk, json!({"cpu": "1"})), Ok("b".to_owned()));
    let mut nowhere = scheduler(&required("tape"), nodes.clone(), &[]);
    let message = "0/2 nodes are available: 2 node(s) didn't match scheduler-enforced node affinity. preemption: 0/2 \
        nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(place(&mut nowhere, json!({})), Err(message.to_owned()));
    let preferred = args(json!({"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": term("ssd")}]}));
    let mut scheduler = scheduler(&preferred, nodes, &[]);
    assert_eq!(place(&mut scheduler, json!({})), Ok("b".to_owned()));
}

#[test]
fn constraints_of_a_profile_are_those_of_pods_without() {
    let zone = "topology.kubernetes.io/zone";
    let constraint = json!({"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule"});
    let args = json!({"defaultingType": "List", "defaultConstraints": [constraint]});
    let nodes = json!([{"name": "a", "zone": "1"}, {"name": "b", "zone": "2", "unschedulable": true}]);
    let running = [("a", json!({"labels": {"app": "x"}}))];
    let spread = |configuration: &Configuration| {
        let mut scheduler = scheduler(configuration, nodes.clone(), &running);
        let selector = serde_json::from_value(json!({"matchLabels": {"app": "x"}})).unwrap();
        let key = ObjectKey::new("ns", "service");
        let kind = crate::owner_selectors::OwnerKind::Service;
        scheduler.owner_changed(kind, &key, Some(selector));
        scheduler
    };
    let configured = with_args("PodTopologySpread", args, false);
    let of_service = json!({"labels": {"app": "x"}});
    let refused = place(&mut spread(&configured), of_service.clone()).unwrap_err();
    assert!(
        refused.contains("1 node(s) didn't match pod topology spread constraints"),
        "{refused}"
    );
    assert_eq!(
        place(&mut spread(&configured), json!({"labels": {"app": "y"}})),
        Ok("a".to_owned()),
        "no service selects it"
    );
    assert_eq!(
        place(&mut spread(&Configuration::default()), of_service),
        Ok("a".to_owned())
    );
}

#[test]
fn weight_of_hard_affinity_is_the_profiles() {
    let friend = json!({"labels": {"app": "x"}, "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "y"}}}]}}});
    let liked = json!({"labels": {"app": "y"}});
    let running = [("a", friend)];
    let place = |args: Value| {
        let configuration = with_args("InterPodAffinity", args, true);
        let mut scheduler = scheduler(&configuration, two(), &running);
        // Among equals the last digit of the random number decides: the second node.
        let pod = make_pod(
            "p",
            json!({"labels": liked["labels"], "schedulerName": SCHEDULER_NAME}),
        );
        scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
        match scheduler.decide(Duration::ZERO, 1) {
            Some(Decision::Bind { node, .. }) => node.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(place(json!({"hardPodAffinityWeight": 1})), "a");
    assert_eq!(place(json!({"hardPodAffinityWeight": 0})), "b");
    assert_eq!(place(json!({"ignorePreferredTermsOfExistingPods": true})), "b");
}

#[test]
fn preemption_asks_for_as_many_candidates_as_the_profile() {
    let names: Vec<Value> = (0..30).map(|at| json!({"name": format!("n{at}")})).collect();
    let running: Vec<(String, Value)> = (0..30)
        .map(|at| (format!("n{at}"), json!({"cpu": "4"})))
        .collect();
    let running: Vec<(&str, Value)> = running
        .iter()
        .map(|(name, spec)| (&**name, spec.clone()))
        .collect();
    let attempts = |args: Value| {
        let configuration = with_args("DefaultPreemption", args, false);
        let mut scheduler = scheduler(&configuration, Value::Array(names.clone()), &running);
        let refused = place(&mut scheduler, json!({"cpu": "4", "priority": 5})).unwrap_err();
        assert!(refused.contains("preempting 1 victims"), "{refused}");
        scheduler.last_steps()
    };
    let few = attempts(json!({"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 1}));
    assert!(
        few < attempts(json!({})),
        "three nodes are looked at instead of thirty"
    );
}

#[test]
fn profile_without_a_plugin_does_without_it() {
    let plugins = |plugins: Value| configuration(json!({"profiles": [{"plugins": plugins}]}));
    let only = |name: &str| json!({"disabled": [{"name": name}]});
    let tainted = json!([{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}]);
    let mut all = scheduler(&Configuration::default(), tainted.clone(), &[]);
    assert!(place(&mut all, json!({})).is_err());
    let mut without = scheduler(&plugins(json!({"filter": only("TaintToleration")})), tainted, &[]);
    assert_eq!(place(&mut without, json!({})), Ok("a".to_owned()));
    // No pod has to go, and no event is written.
    let running = [("a", json!({"cpu": "4"}))];
    let alone = plugins(json!({"postFilter": only("*")}));
    let mut peaceful = scheduler(&alone, json!([{"name": "a"}]), &running);
    assert_eq!(
        place(&mut peaceful, json!({"cpu": "1", "priority": 5})),
        Err("0/1 nodes are available: 1 Insufficient cpu.".to_owned())
    );
    // Gates hold nothing back.
    let mut open = scheduler(
        &plugins(json!({"preEnqueue": only("SchedulingGates")})),
        two(),
        &[],
    );
    assert!(place(&mut open, json!({"schedulingGates": [{"name": "g"}]})).is_ok());
}

#[test]
fn pods_are_placed_by_the_profile_that_they_name() {
    let packing = json!({"schedulerName": "packing", "plugins": {"score": {
        "disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]});
    let both = configuration(json!({"profiles": [{"schedulerName": SCHEDULER_NAME}, packing]}));
    let running = [("a", json!({"cpu": "2"}))];
    let mut scheduler = scheduler(&both, two(), &running);
    assert_eq!(place(&mut scheduler, json!({"cpu": "1"})), Ok("b".to_owned()));
    let packed = json!({"cpu": "1", "schedulerName": "packing"});
    assert_eq!(place(&mut scheduler, packed), Ok("a".to_owned()));
    let foreign = make_pod("f", json!({"schedulerName": "somebody-else"}));
    scheduler.pod_changed(&foreign.key, Some(&foreign), Duration::ZERO);
    assert!(!scheduler.has_work(Duration::ZERO));
    assert_eq!(Profiles::new(&both).iter().count(), 2);
}

#[test]
fn backoff_is_the_configurations() {
    let slow = configuration(json!({"podInitialBackoffSeconds": 7, "podMaxBackoffSeconds": 9}));
    let mut scheduler = scheduler(&slow, two(), &[]);
    let pod = make_pod("p", json!({"schedulerName": SCHEDULER_NAME}));
    scheduler.pod_changed(&pod.key, Some(&pod), Duration::ZERO);
    for (failures, wait) in [(1, 7), (2, 9)] {
        let now = Duration::from_secs(100 * failures);
        assert!(matches!(scheduler.decide(now, 0), Some(Decision::Bind { .. })));
        scheduler.binding_failed(&pod, now);
        assert_eq!(scheduler.next_wake(), Some(now + Duration::from_secs(wait)));
    }
}
