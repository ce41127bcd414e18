//! Pods and users that take whatever is not bounded, and others beside them that go on.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;

/// Processes of one pod by default.
const PIDS_MAX: usize = 4096;

fn pod(story: &Kubectl, name: &str, script: &str) {
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 0, containers: \
             [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sh, -c, {script:?}]}}]}}}}"
        ),
    );
}

/// Begins more processes than a pod may have: children that only wait, so that the machine's processors are free.
const BOMB: &str = "(i=0; while [ $i -lt 6000 ]; do sleep 100000 & i=$((i+1)); echo $i > /count; done) 2>/dev/null; \
                    read n < /count; echo $n; exec sleep 100000";

pub(crate) fn a_fork_bomb_is_bounded_by_its_pod(cluster: &Cluster) {
    let story = cluster.namespace("bomb");
    pod(&story, "good", "sleep 100000");
    pod(&story, "bomb", BOMB);
    story.wait("pod/good", "condition=Ready");
    let mut begun = String::new();
    story.until("the bomb to stop", || {
        begun = story.kubectl(&["logs", "bomb"]);
        begun.ends_with('\n')
    });
    let begun: usize = begun.trim().parse().expect("a number of processes");
    assert!((PIDS_MAX / 2..PIDS_MAX).contains(&begun), "{begun} processes");
    // Others and the agent go on, beside it and after it.
    assert_eq!(story.kubectl(&["exec", "good", "--", "echo", "well"]), "well\n");
    pod(&story, "later", "sleep 100000");
    story.wait("pod/later", "condition=Ready");
    story.kubectl(&["delete", "pod", "bomb", "--timeout=100s"]);
    let all: usize = limit(cluster, "kubepods").parse().expect("a number of processes");
    let machine = std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("the kernel says");
    assert!(all < machine.trim().parse().expect("a number"), "{all}");
}

/// The bound of processes of a group below the cluster's.
fn limit(cluster: &Cluster, group: &str) -> String {
    let group = format!(
        "{}/{group}/pids.max",
        cluster.host.cgroup_root().trim_matches('/')
    );
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(std::path::Path::new);
    let found = roots
        .iter()
        .find_map(|root| std::fs::read_to_string(root.join(&group)).ok());
    found.expect("the group is there").trim().to_owned()
}
