//! Changes of nodes and pods that wake a rejected pod, in `testdata/queueing_hints.jsonl`: upstream's tables of
//! `isSchedulableAfter…` of the plugins that look at nodes and pods (1.37). Left out are objects of a wrong type, which there are
//! none of here; those of the plugins of volumes and devices have files of their own.

use super::profiles::with_args;
use super::*;
use crate::config::Configuration;
use crate::scheduler::SCHEDULER_NAME;
use serde::Deserialize;

const NOW: Duration = Duration::ZERO;

#[derive(Deserialize)]
struct Row {
    plugin: String,
    /// Object that changes: a `node`, another `pod`, or the pod's `own` fields.
    of: String,
    name: String,
    pod: Value,
    #[serde(default)]
    old: Option<Value>,
    #[serde(default)]
    new: Option<Value>,
    /// Arguments of the plugin.
    #[serde(default)]
    args: Option<Value>,
    wakes: bool,
}

fn pod_of(object: &Value) -> Arc<PodInfo> {
    let mut object = object.clone();
    object["spec"]["schedulerName"] = SCHEDULER_NAME.into();
    Arc::new(PodInfo::new(serde_json::from_value(object).unwrap()))
}

/// Rejects the pod that waits in the plugin's name.
fn reject(scheduler: &mut Scheduler, key: &ObjectKey, plugin: &str) {
    while scheduler
        .queue
        .pop(NOW)
        .is_some_and(|popped| popped.pod.key != *key)
    {}
    let pod = scheduler.queue.get(key).cloned().unwrap();
    let plugins = scheduler.profile_of(&pod).unwrap().algorithm.plugins();
    let name = plugins
        .filter
        .iter()
        .find(|row| row.name() == plugin)
        .unwrap()
        .name();
    let rejected_by = BTreeSet::from([name]);
    let wakes_on = plugins.rejecting(&rejected_by);
    scheduler.queue.reject(key, rejected_by, wakes_on, NOW);
}

impl Row {
    fn change(&self, scheduler: &mut Scheduler, object: &Value, is_gone: bool) {
        if self.of == "node" {
            let node: Node = serde_json::from_value(object.clone()).unwrap();
            let node = (!is_gone).then_some(&node);
            scheduler.node_changed(object["metadata"]["name"].as_str().unwrap(), node, NOW);
        } else {
            let pod = pod_of(object);
            scheduler.pod_changed(&pod.key, Some(&pod).filter(|_| !is_gone), NOW);
        }
    }

    fn wakes(&self) -> bool {
        let configuration = self.args.as_ref().map_or_else(Configuration::default, |args| {
            with_args(&self.plugin, args.clone(), false)
        });
        let mut scheduler = Scheduler::new(&configuration);
        let pod = pod_of(&self.pod);
        if let Some(old) = &self.old {
            self.change(&mut scheduler, old, false);
        }
        scheduler.pod_changed(&pod.key, Some(&pod), NOW);
        reject(&mut scheduler, &pod.key, &self.plugin);
        let object = self.new.as_ref().or(self.old.as_ref()).unwrap();
        self.change(&mut scheduler, object, self.new.is_none());
        !scheduler.queue.is_unschedulable(&pod.key)
    }
}

#[test]
fn nodes_and_pods_wake_rejected_pods_as_upstreams() {
    let mut wrong = Vec::new();
    let rows = include_str!("../../testdata/queueing_hints.jsonl").lines();
    let rows: Vec<Row> = rows.map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        if row.wakes() != row.wakes {
            wrong.push(format!("{} {}: {}", row.plugin, row.of, row.name));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert_eq!(rows.len(), 108);
}

/// Nodes of a cluster, and as many pods each that lack room and a label.
fn waiting(pods: usize) -> (Scheduler, Vec<Arc<PodInfo>>) {
    let mut scheduler = Scheduler::default();
    let node = make_node(&json!({"name": "a", "cpu": "1"}));
    scheduler.node_changed("a", Some(&node), NOW);
    let lacks = [
        json!({"cpu": "2"}),
        json!({"cpu": "100m", "nodeSelector": {"disk": "ssd"}}),
    ];
    let of = |number: usize| {
        let mut spec = lacks[number % 2].clone();
        spec["schedulerName"] = SCHEDULER_NAME.into();
        make_pod(&format!("p{number}"), spec)
    };
    let all: Vec<Arc<PodInfo>> = (0..2 * pods).map(of).collect();
    for pod in &all {
        scheduler.pod_changed(&pod.key, Some(pod), NOW);
        let decided = scheduler.decide(NOW, 0);
        assert!(matches!(decided, Some(Decision::Reject { .. })), "{decided:?}");
    }
    assert_eq!(woken(&mut scheduler, &all), (0, 0));
    (scheduler, all)
}

/// Pods that the last changes were compared with, and pods that came back.
fn woken(scheduler: &mut Scheduler, pods: &[Arc<PodInfo>]) -> (usize, usize) {
    let is_back = |pod: &&Arc<PodInfo>| !scheduler.queue.is_unschedulable(&pod.key);
    let back = pods.iter().filter(is_back).count();
    (scheduler.queue.take_compared(), back)
}

/// Each event was once compared with all two hundred pods.
#[test]
fn events_are_compared_with_the_pods_that_wait_for_them() {
    let (mut scheduler, pods) = waiting(100);
    let mut change = |node: Value, expected| {
        let node: Node = serde_json::from_value(node).unwrap();
        scheduler.node_changed("a", Some(&node), NOW);
        assert_eq!(woken(&mut scheduler, &pods), expected);
    };
    let mut node = json!({"metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "a"}},
        "status": {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "110"}}});
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]);
    change(node.clone(), (0, 0));
    node["metadata"]["annotations"] = json!({"a": "b"});
    change(node.clone(), (0, 0));
    node["spec"] = json!({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]});
    change(node.clone(), (0, 0));
    // Half of the pods wait for labels, none for this one; the other half for room, of which there is not enough yet.
    node["metadata"]["labels"]["disk"] = "hdd".into();
    change(node.clone(), (100, 0));
    node["status"]["allocatable"]["memory"] = "16Gi".into();
    change(node.clone(), (100, 0));
    node["metadata"]["labels"]["disk"] = "ssd".into();
    change(node.clone(), (100, 100));
    node["status"]["allocatable"]["cpu"] = "2".into();
    change(node, (100, 200));
}

#[test]
fn pods_that_come_and_go_are_compared_with_the_pods_that_wait_for_them() {
    let (mut scheduler, pods) = waiting(100);
    let running = make_pod("running", json!({"cpu": "100m", "nodeName": "a"}));
    scheduler.pod_changed(&running.key, Some(&running), NOW);
    assert_eq!(woken(&mut scheduler, &pods), (0, 0));
    scheduler.pod_changed(&running.key, None, NOW);
    assert_eq!(woken(&mut scheduler, &pods), (100, 100));
}

/// Conditions and annotations wake pods of which nothing else is known.
#[test]
fn conditions_and_annotations_of_nodes_are_events_of_their_own() {
    for (field, value) in [
        (
            "/status/conditions",
            json!([{"type": "Ready", "status": "False"}]),
        ),
        ("/metadata/annotations", json!({"a": "c"})),
    ] {
        let mut node = json!({"metadata": {"name": "a", "annotations": {"a": "b"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let mut scheduler = Scheduler::default();
        let pod = make_pod("p", json!({"schedulerName": SCHEDULER_NAME}));
        let read = |node: &Value| -> Node { serde_json::from_value(node.clone()).unwrap() };
        scheduler.node_changed("a", Some(&read(&node)), NOW);
        scheduler.pod_changed(&pod.key, Some(&pod), NOW);
        scheduler.queue.pop(NOW).unwrap();
        scheduler
            .queue
            .reject(&pod.key, BTreeSet::new(), ClusterEvents::ANY, NOW);
        assert_eq!(scheduler.node_changed("a", Some(&read(&node)), NOW), "NodeUpdate");
        assert!(scheduler.queue.is_unschedulable(&pod.key));
        *node.pointer_mut(field).unwrap() = value;
        scheduler.node_changed("a", Some(&read(&node)), NOW);
        assert!(!scheduler.queue.is_unschedulable(&pod.key), "{field}");
    }
}

/// A pod that this scheduler bound wakes others as any pod that comes to a node.
#[test]
fn pod_that_was_bound_here_wakes_the_pods_that_wait_for_it() {
    let mut scheduler = Scheduler::default();
    let node = make_node(&json!({"name": "a"}));
    scheduler.node_changed("a", Some(&node), NOW);
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let follower = make_pod(
        "follower",
        json!({"schedulerName": SCHEDULER_NAME, "affinity": affinity}),
    );
    scheduler.pod_changed(&follower.key, Some(&follower), NOW);
    let decided = scheduler.decide(NOW, 0);
    assert!(matches!(decided, Some(Decision::Reject { .. })), "{decided:?}");
    let mut spec = json!({"schedulerName": SCHEDULER_NAME, "labels": {"app": "x"}});
    let leader = make_pod("leader", spec.clone());
    scheduler.pod_changed(&leader.key, Some(&leader), NOW);
    let decided = scheduler.decide(NOW, 0);
    assert!(matches!(decided, Some(Decision::Bind { .. })), "{decided:?}");
    scheduler.bound(&leader);
    spec["nodeName"] = "a".into();
    let leader = make_pod("leader", spec);
    scheduler.pod_changed(&leader.key, Some(&leader), NOW);
    assert!(!scheduler.queue.is_unschedulable(&follower.key));
}
