//! Outages of the whole node.

use crate::support::cluster::Cluster;

pub(crate) fn a_cordoned_node_takes_no_more_pods(cluster: &Cluster) {
    let story = cluster.namespace("cordon");
    let node = cluster
        .kubectl
        .kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    story.kubectl(&["cordon", &node]);
    assert!(
        story
            .kubectl(&["get", "nodes"])
            .contains("Ready,SchedulingDisabled")
    );
    let image = "--image=knarr.test/tools:latest";
    story.kubectl(&[
        "run",
        "main",
        image,
        "--image-pull-policy=IfNotPresent",
        "--",
        "sleep",
        "10000",
    ]);
    story.until("an event that says why it waits", || {
        let events = story.kubectl(&["events", "--for", "pod/main"]);
        events.contains("FailedScheduling")
            && events.contains("0/1 nodes are available: 1 node(s) were unschedulable")
    });
    assert_eq!(story.field("pod/main", "{.status.phase}"), "Pending");
    story.kubectl(&["uncordon", &node]);
    story.wait("pod/main", "condition=Ready");
    story.until("events that say what was done with the node", || {
        let events = story.kubectl(&["events", "-n", "default", "--for", &format!("node/{node}")]);
        ["NodeNotSchedulable", "NodeSchedulable"]
            .iter()
            .all(|word| events.contains(&format!("Node {node} status is now: {word}")))
    });
}
