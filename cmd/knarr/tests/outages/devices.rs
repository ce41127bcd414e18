//! Devices of a plugin while the agent is killed.

use super::kills::{AGENT, kill_and_wait};
use crate::support::cluster::Cluster;
use crate::support::device_plugin::TestPlugin;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;

const RESOURCE: &str = "vendor.example/null";

fn pod(name: &str, count: u32) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    resources: {{limits: {{{RESOURCE}: {count}}}}}
"
    )
}

fn devices(story: &Kubectl, pod: &str) -> String {
    let look =
        "echo $DEVICES; ls /dev | grep null-; cat /opt/devices/file; echo x > /dev/${DEVICES%%,*}; echo $?";
    story.kubectl(&["exec", pod, "--", "sh", "-c", look])
}

pub(crate) fn a_pod_keeps_its_devices_when_the_agent_is_killed(cluster: &Cluster) {
    let story = cluster.namespace("devices");
    let files = tempfile::tempdir().expect("a folder");
    std::fs::write(files.path().join("file"), "of the plugin\n").expect("a file");
    let ids = ["null-a", "null-b", "null-c"];
    let _plugin = TestPlugin::start(&cluster.agent_dir(), RESOURCE, &ids, files.path());
    story.feed(&["apply"], &pod("one", 2));
    story.wait("pod/one", "condition=Ready");
    let seen = "null-a,null-b\nnull-a\nnull-b\nof the plugin\n0\n";
    assert_eq!(devices(&story, "one"), seen);

    kill_and_wait(cluster, AGENT);
    // The scheduler waits until the plugin has registered again; what one pod has the other does not get.
    story.feed(&["apply"], &pod("two", 1));
    story.wait("pod/two", "condition=Ready");
    assert_eq!(devices(&story, "two"), "null-c\nnull-c\nof the plugin\n0\n");
    assert_eq!(devices(&story, "one"), seen);
    let restarts = "{.status.containerStatuses[0].restartCount}";
    assert_eq!(story.field("pod/one", restarts), "0");

    // Once the pod is gone, others may have them.
    story.kubectl(&["delete", "pod", "one", "--now"]);
    story.feed(&["apply"], &pod("three", 2));
    story.wait("pod/three", "condition=Ready");
    assert_eq!(devices(&story, "three"), seen);
    let metrics = story.kubectl(&[
        "get",
        "--raw",
        &format!("/api/v1/nodes/{}/proxy/metrics", node(&story)),
    ]);
    let counted = format!("kubelet_device_plugin_registration_total{{resource_name=\"{RESOURCE}\"}} 1\n");
    assert!(metrics.contains(&counted), "{metrics}");
}

fn node(story: &Kubectl) -> String {
    story.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"])
}
