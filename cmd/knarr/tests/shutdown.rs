//! A machine that goes down, as its logind has it, with real containers: pods end by priority while the lock is held. Needs root:
//! `cargo test --test shutdown -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use support::cluster::Cluster;
use support::image::TOOLS;
use support::kubectl::Kubectl;
use support::logind::FakeLogind;

const TEST: &str = "shutdown";
const NAME: &str = "pods_end_by_priority_when_the_machine_goes_down";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = Trial::ignorable_test(NAME, run).with_ignored_flag(true);
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn run() -> Result<Completion, Failed> {
    let folder = tempfile::tempdir()?;
    let cannot_run = || Ok(Completion::ignored_with("this machine cannot run it"));
    let Some(mut logind) = FakeLogind::start(TEST, folder.path()) else {
        return cannot_run();
    };
    let flags = ["--shutdown-grace-period-by-pod-priority=0=60,1000=30".to_owned()];
    let bus = format!("DBUS_SYSTEM_BUS_ADDRESS={}", logind.address);
    let through = ["env".into(), bus.into()];
    let Some(cluster) = Cluster::start_through(TEST, &flags, &through) else {
        return cannot_run();
    };
    let scenario = || pods_end_by_priority_when_the_machine_goes_down(&cluster, &mut logind);
    let outcome = catch_unwind(AssertUnwindSafe(scenario));
    cluster.remove()?;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
    Ok(Completion::Completed)
}

/// A pod that ends at its signal, and says when in its termination message.
fn pod(story: &Kubectl, name: &str, class: &str) {
    let script = "trap 'sleep 2; cut -d. -f1 /proc/uptime > /dev/termination-log; exit 0' TERM; while :; do sleep 0.1; done";
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{priorityClassName: '{class}', \
             terminationGracePeriodSeconds: 3600, volumes: [{{name: scratch, emptyDir: {{medium: Memory}}}}], \
             containers: [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sh, -c, {script:?}], \
             volumeMounts: [{{name: scratch, mountPath: /scratch}}]}}]}}}}"
        ),
    );
    story.wait(&format!("pod/{name}"), "condition=Ready");
}

const STATUS: &str = "{.status.phase} {.status.reason}: {.status.message}";
const TERMINATED: &str = "Failed Terminated: Pod was terminated in response to imminent node shutdown.";
const READY: &str = "{.items[0].status.conditions[?(@.type=='Ready')]['status','reason','message']}";

fn until(story: &Kubectl, object: &str, path: &str, expected: &str) {
    let mut found = String::new();
    story.until(&format!("{object} to be {expected:?}"), || {
        found = story.field(object, path);
        found == expected
    });
}

/// Seconds since the machine's start at which the process of a pod ended.
fn ended_at(story: &Kubectl, name: &str) -> u64 {
    let path = "{.status.containerStatuses[0].state.terminated.message}";
    let message = story.field(&format!("pod/{name}"), path);
    message.trim().parse().expect("the time of its end")
}

fn pods_end_by_priority_when_the_machine_goes_down(cluster: &Cluster, logind: &mut FakeLogind) {
    const LOCK: &str = "inhibit shutdown kubelet delay";
    logind.expect(LOCK);
    let story = cluster.namespace("shutdown");
    story.feed(
        &["apply"],
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 5000}",
    );
    pod(&story, "plain", "");
    pod(&story, "important", "important");
    assert!(!logind.has_printed("released"), "nothing has ended yet");
    logind.prepare(true);
    until(
        &story,
        "nodes",
        READY,
        "False KubeletNotReady node is shutting down",
    );
    until(&story, "pod/plain", STATUS, TERMINATED);
    until(&story, "pod/important", STATUS, TERMINATED);
    logind.expect("released");
    let (plain, important) = (ended_at(&story, "plain"), ended_at(&story, "important"));
    assert!(plain + 2 <= important, "{plain} {important}: one after the other");
    logind.prepare(false);
    logind.expect(LOCK);
    until(
        &story,
        "nodes",
        READY,
        "True KubeletReady kubelet is posting ready status",
    );
    pod(&story, "next", "");
}
