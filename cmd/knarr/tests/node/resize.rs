//! Resizes of a running container, as the kernel shows them.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;
use node_sys::cgroup::{CgroupResources, detect};

fn pod(name: &str, rest: &str) -> String {
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
    resources: {{limits: {{cpu: 100m, memory: 64Mi}}}}
    {rest}
"
    )
}

fn resize(story: &Kubectl, pod: &str, cpu: &str, memory: &str) {
    story.kubectl(&[
        "patch",
        "pod",
        pod,
        "--subresource",
        "resize",
        "-p",
        &resized(cpu, memory),
    ]);
}

fn resized(cpu: &str, memory: &str) -> String {
    let amounts = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
    let container = format!(r#"{{"name":"main","resources":{{"limits":{amounts},"requests":{amounts}}}}}"#);
    format!(r#"{{"spec":{{"containers":[{container}]}}}}"#)
}

/// Processor time per period and bytes: of the pod's group and of its container's.
fn limits(cluster: &Cluster, story: &Kubectl, pod: &str) -> [(Option<i64>, Option<i64>); 2] {
    let object = format!("pod/{pod}");
    let uid = story.field(&object, "{.metadata.uid}");
    let id = story.field(&object, "{.status.containerStatuses[0].containerID}");
    let group = format!("{}/kubepods/pod{uid}", cluster.host.cgroup_root());
    let container = format!("{group}/{}", id.trim_start_matches("containerd://"));
    let told = |limits: CgroupResources| (limits.cpu_quota_us, limits.memory_limit_bytes);
    [group, container].map(|group| told(detect().limits(&group)))
}

fn both(cpu_us: i64, memory_mib: i64) -> [(Option<i64>, Option<i64>); 2] {
    [(Some(cpu_us), Some(memory_mib << 20)); 2]
}

const ACTUAL: &str = "{.status.containerStatuses[0].resources.limits.cpu} {.status.containerStatuses[0].resources.limits.memory} {.status.containerStatuses[0].allocatedResources.memory}";
const RUN: &str = "{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}";
const CONDITIONS: &str = "{.status.conditions[?(@.status==\"True\")].type}";

fn settled(story: &Kubectl, pod: &str, actual: &str) {
    story.until(&format!("{pod} to have {actual}"), || {
        story.field(pod, ACTUAL) == actual && !story.field(pod, CONDITIONS).contains("PodResize")
    });
}

pub(crate) fn a_running_pod_is_resized_in_place(cluster: &Cluster) {
    let story = cluster.namespace("resize");
    story.feed(&["apply"], &pod("main", ""));
    story.wait("pod/main", "condition=Ready");
    let run = story.field("pod/main", RUN);
    assert_eq!(limits(cluster, &story, "main"), both(10_000, 64));
    resize(&story, "main", "200m", "96Mi");
    settled(&story, "pod/main", "200m 96Mi 96Mi");
    assert_eq!(limits(cluster, &story, "main"), both(20_000, 96));
    resize(&story, "main", "150m", "80Mi");
    settled(&story, "pod/main", "150m 80Mi 80Mi");
    assert_eq!(limits(cluster, &story, "main"), both(15_000, 80));
    assert_eq!(
        story.field("pod/main", RUN),
        run,
        "the same container, never restarted"
    );
    story.until("events that say so", || {
        let events = story.kubectl(&["events", "--for", "pod/main"]);
        events.contains("ResizeStarted")
            && events.contains("Pod resize completed: {\"containers\":[{\"name\":\"main\"")
    });
}

pub(crate) fn a_resize_waits_for_what_is_in_its_way(cluster: &Cluster) {
    let story = cluster.namespace("resize-waits");
    story.feed(&["apply"], &pod("main", ""));
    story.wait("pod/main", "condition=Ready");
    let run = story.field("pod/main", RUN);
    let pending = "{.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    let beyond = resized("1000", "64Mi");
    let refused = story.try_kubectl(&["patch", "pod", "main", "--subresource", "resize", "-p", &beyond]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    let reason =
        "is forbidden: node didn't have enough allocatable resources: cpu, requested: 1000000, allocatable: ";
    assert!(words.contains(reason), "{words}");
    // Another pod has a part of the node, so that the whole of it is too much.
    let all = story.field("node", "{.items[0].status.allocatable.cpu}");
    story.feed(&["apply"], &pod("other", ""));
    story.wait("pod/other", "condition=Ready");
    resize(&story, "main", &all, "64Mi");
    story.until("the node to have no room", || {
        story.field("pod/main", pending) == "Deferred"
    });
    assert_eq!(limits(cluster, &story, "main"), both(10_000, 64));
    resize(&story, "main", "100m", "64Mi");
    settled(&story, "pod/main", "100m 64Mi 64Mi");
    // What is in use cannot be taken.
    let hold = "head -c 40000000 /dev/zero > /dev/shm/held";
    story.kubectl(&["exec", "main", "--", "sh", "-c", hold]);
    resize(&story, "main", "100m", "16Mi");
    let problem = "{.status.conditions[?(@.type==\"PodResizeInProgress\")].message}";
    story.until("the limit to be refused", || {
        story
            .field("pod/main", problem)
            .starts_with("cannot decrease memory limits: [attempting to set pod memory limit (16777216) below current usage (")
    });
    assert_eq!(limits(cluster, &story, "main"), both(10_000, 64));
    story.kubectl(&["exec", "main", "--", "rm", "/dev/shm/held"]);
    settled(&story, "pod/main", "100m 16Mi 16Mi");
    assert_eq!(limits(cluster, &story, "main"), both(10_000, 16));
    assert_eq!(
        story.field("pod/main", RUN),
        run,
        "the same container, never restarted"
    );
}

pub(crate) fn a_container_that_asks_for_it_is_restarted_to_be_resized(cluster: &Cluster) {
    let story = cluster.namespace("resize-restarts");
    let policy = "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
    story.feed(&["apply"], &pod("main", policy));
    story.wait("pod/main", "condition=Ready");
    resize(&story, "main", "200m", "96Mi");
    story.wait_value("pod/main", "{.status.containerStatuses[0].restartCount}", "1");
    story.wait("pod/main", "condition=Ready");
    settled(&story, "pod/main", "200m 96Mi 96Mi");
    assert_eq!(limits(cluster, &story, "main"), both(20_000, 96));
    story.until("an event that says why", || {
        story
            .kubectl(&["events", "--for", "pod/main"])
            .contains("Container main resize requires restart")
    });
}
