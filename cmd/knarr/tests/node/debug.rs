//! `kubectl debug`: looking into a pod with a container that is put there for it.

use super::commands::{IMAGE, PRESENT, on_terminal, run};
use crate::support::cluster::Cluster;

/// Capability that only a privileged container has, as a bit of `CapEff`.
const CAP_SYS_ADMIN: u64 = 1 << 21;

pub(crate) fn a_running_pod_is_debugged(cluster: &Cluster) {
    let story = cluster.namespace("debugged");
    run(&story, "exec sleep 10000");
    story.kubectl(&[
        "debug",
        "main",
        IMAGE,
        PRESENT,
        "-c",
        "once",
        "--",
        "sh",
        "-c",
        "echo seen; exit 3",
    ]);
    let state = "{.status.ephemeralContainerStatuses[?(@.name==\"once\")].state.terminated.exitCode}";
    story.wait_value("pod/main", state, "3");
    assert_eq!(story.kubectl(&["logs", "main", "-c", "once"]), "seen\n");
    story.until("an event of it", || {
        let of_it = "involvedObject.fieldPath=spec.ephemeralContainers{once},reason=Started";
        let events = story.kubectl(&["get", "events", "--field-selector", of_it]);
        events.contains("Container started")
    });
    // In a terminal, and among the processes of the pod's own container.
    const SCRIPT: &str = "read line; echo got $line; tty; tr '\\0' ' ' < /proc/1/cmdline; echo";
    let look = [
        "debug",
        "-it",
        "main",
        IMAGE,
        PRESENT,
        "-c",
        "live",
        "--target=main",
        "--",
        "sh",
        "-c",
        SCRIPT,
    ];
    let mut session = on_terminal(&story, &look);
    session.say("something");
    let said = session.rest();
    for expected in ["got something", "/dev/pts/", "sleep 10000"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let logged = story.kubectl(&["logs", "main", "-c", "live"]);
    assert!(logged.contains("got something"), "{logged}");
    // The pod takes no notice, and none of them starts again.
    story.wait("pod/main", "condition=Ready");
    let restarts =
        "{.status.containerStatuses[*].restartCount} {.status.ephemeralContainerStatuses[*].restartCount}";
    assert_eq!(story.field("pod/main", restarts), "0 0 0");
}

pub(crate) fn a_pod_that_does_not_start_is_debugged(cluster: &Cluster) {
    let story = cluster.namespace("stuck");
    story.kubectl(&[
        "run",
        "main",
        "--image=knarr.test/none:1",
        "--image-pull-policy=Never",
    ]);
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    story.wait_value("pod/main", reason, "ErrImageNeverPull");
    // With all rights of the machine, which its sandbox was not made for.
    story.kubectl(&[
        "debug",
        "main",
        IMAGE,
        PRESENT,
        "--profile=sysadmin",
        "-c",
        "dbg",
        "--",
        "sh",
        "-c",
        "grep CapEff /proc/self/status",
    ]);
    let state = "{.status.ephemeralContainerStatuses[0].state.terminated.reason}";
    story.wait_value("pod/main", state, "Completed");
    let rights = story.kubectl(&["logs", "main", "-c", "dbg"]);
    let effective = rights.split_whitespace().last().unwrap_or_default();
    let effective = u64::from_str_radix(effective, 16).unwrap_or_else(|_| panic!("{rights}"));
    assert!(effective & CAP_SYS_ADMIN != 0, "{rights}");
    assert_eq!(story.field("pod/main", reason), "ErrImageNeverPull");
    // There are no processes of `main` to see.
    story.kubectl(&[
        "debug",
        "main",
        IMAGE,
        PRESENT,
        "-c",
        "blind",
        "--target=main",
        "--",
        "true",
    ]);
    let message = "{.status.ephemeralContainerStatuses[?(@.name==\"blind\")].state.waiting.message}";
    story.wait_value("pod/main", message, "unable to find target container main");
}
