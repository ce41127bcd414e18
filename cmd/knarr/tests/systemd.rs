//! A node whose groups are systemd's slices, on a machine that systemd has started: `docs/knarr.service` starts it, pods have slices
//! with their limits, an agent that starts again keeps them, the machine goes down after its pods, and comes up with them.
//! Needs root, systemd and cgroup v1: `cargo test --test systemd -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use node_sys::cgroup::detect;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use support::image::TOOLS;
use support::kubectl::{Kubectl, kubectl_or_skip};
use support::systemd_machine::Machine;
use support::{Host, text, wait_ready};

const TEST: &str = "systemd";
const NAME: &str = "pods_of_a_node_under_systemd_have_slices";
fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = Trial::ignorable_test(NAME, run).with_ignored_flag(true);
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn run() -> Result<Completion, Failed> {
    let cannot_run = || Ok(Completion::ignored_with("this machine cannot run it"));
    let Some(program) = kubectl_or_skip(TEST) else {
        return cannot_run();
    };
    let folder = tempfile::tempdir()?;
    let host = Host::prepare(Some(format!("{TEST}-{}", std::process::id())))
        .map_err(|error| format!("{error:#}"))?;
    // The namespace of the network goes whatever happens.
    let whole = || Machine::start(TEST, program, &host, folder.path()).map(story);
    let ended = catch_unwind(AssertUnwindSafe(whole));
    host.remove().map_err(|error| format!("{error:#}"))?;
    match ended.unwrap_or_else(|panic| resume_unwind(panic)) {
        Some(()) => Ok(Completion::Completed),
        None => cannot_run(),
    }
}

fn story(machine: Machine) {
    machine.wait_node();
    machine.import();
    machine.kubectl.kubectl(&["create", "namespace", "slices"]);
    let story = machine.kubectl.within("slices");
    story.wait("serviceaccount/default", "create");
    driver_is_systemds(&machine);
    pods_have_slices_with_their_limits(&machine, &story);
    reload_of_systemd_changes_nothing(&machine, &story);
    resize_reaches_the_slice(&machine, &story);
    container_without_memory_is_ended(&story);
    agent_that_starts_again_keeps_pods(&machine, &story);
    deletion_leaves_no_slice(&machine, &story);
    let machine = machine_goes_down_after_its_pods(machine, &story);
    uninstall_leaves_no_slice(&machine);
}

/// A pod with such resources, on which a script runs.
fn pod(story: &Kubectl, name: &str, own: &str, resources: &str, script: &str) {
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 1, {own} \
             containers: [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, resources: {resources}, \
             command: [sh, -c, {script:?}], volumeMounts: [{{name: marks, mountPath: /marks}}]}}], \
             volumes: [{{name: marks, hostPath: {{path: {}}}}}]}}}}",
            story.folder.join("marks").display()
        ),
    );
}

const SLEEP: &str = "sleep 100000";

/// The slice of a pod, with its path in the node.
fn slice(story: &Kubectl, pod: &str) -> (String, String) {
    let object = format!("pod/{pod}");
    let uid = story.field(&object, "{.metadata.uid}").replace('-', "_");
    let outer = "own_node-kubepods";
    let around = match story.field(&object, "{.status.qosClass}").as_str() {
        "Guaranteed" => outer.to_owned(),
        class => format!("{outer}-{}", class.to_lowercase()),
    };
    let unit = format!("{around}-pod{uid}.slice");
    let mut path = format!("/own_node.slice/{outer}.slice");
    if around != outer {
        path += &format!("/{around}.slice");
    }
    (unit.clone(), format!("{path}/{unit}"))
}

fn container_id(story: &Kubectl, pod: &str) -> String {
    let id = story.field(
        &format!("pod/{pod}"),
        "{.status.containerStatuses[0].containerID}",
    );
    id.trim_start_matches("containerd://").to_owned()
}

fn driver_is_systemds(machine: &Machine) {
    let node = machine.kubectl.field("nodes", "{.items[0].metadata.name}");
    let path = format!("/api/v1/nodes/{node}/proxy/configz");
    let shown = machine.kubectl.kubectl(&["get", "--raw", &path]);
    assert!(shown.contains(r#""cgroupDriver":"systemd""#), "{shown}");
    assert_eq!(machine.property("knarr", "ActiveState"), "active");
    let all = machine.property("own_node-kubepods.slice", "MemoryLimit");
    assert_ne!(all, "infinity", "all pods together");
    let checked = machine.node.says(&[env!("CARGO_BIN_EXE_knarr"), "check"]);
    assert!(
        checked.contains("systemd runs: --cgroup-driver may be"),
        "{checked}"
    );
}

fn pods_have_slices_with_their_limits(machine: &Machine, story: &Kubectl) {
    let limits = "{limits: {cpu: 250m, memory: 64Mi}}";
    pod(story, "guaranteed", "", limits, SLEEP);
    pod(
        story,
        "burstable",
        "",
        "{requests: {cpu: 100m}, limits: {memory: 96Mi}}",
        SLEEP,
    );
    for name in ["guaranteed", "burstable"] {
        story.wait(&format!("pod/{name}"), "condition=Ready");
    }
    check_limits(machine, story, "guaranteed", 64, Some(25_000));
    check_limits(machine, story, "burstable", 96, None);
    let (unit, path) = slice(story, "burstable");
    assert_eq!(machine.property(&unit, "CPUShares"), "102");
    assert_eq!(
        machine.property(&unit, "Wants"),
        "own_node-kubepods-burstable.slice"
    );
    assert_ne!(machine.property(&unit, "TasksMax"), "infinity");
    let scope = format!("cri-containerd-{}.scope", container_id(story, "burstable"));
    assert_eq!(machine.property(&scope, "Slice"), unit);
    assert_eq!(machine.property(&scope, "ActiveState"), "active");
    figures_are_those_of_the_slices(machine, story, &format!("{path}/{scope}"));
}

/// Limits as systemd and the kernel have them.
fn check_limits(machine: &Machine, story: &Kubectl, pod: &str, mebibytes: i64, quota_us: Option<i64>) {
    let (unit, path) = slice(story, pod);
    assert_eq!(machine.property(&unit, "ActiveState"), "active");
    assert_eq!(
        machine.property(&unit, "MemoryLimit"),
        (mebibytes << 20).to_string()
    );
    let quota = quota_us.map_or("infinity".to_owned(), |quota| format!("{}ms", quota / 100));
    assert_eq!(machine.property(&unit, "CPUQuotaPerSecUSec"), quota);
    let found = detect().limits(&format!("/{}{path}", machine.node.group));
    assert_eq!(found.memory_limit_bytes, Some(mebibytes << 20));
    assert_eq!(found.cpu_quota_us, quota_us);
}

fn figures_are_those_of_the_slices(machine: &Machine, story: &Kubectl, container: &str) {
    let node = machine.kubectl.field("nodes", "{.items[0].metadata.name}");
    let raw = |path: &str| {
        let path = format!("/api/v1/nodes/{node}/proxy/{path}");
        machine.kubectl.kubectl(&["get", "--raw", &path])
    };
    let memory = format!(r#"container_memory_usage_bytes{{container="main",id="{container}""#);
    story.until("figures of a container", || {
        raw("metrics/cadvisor").contains(&memory)
    });
    story.until("figures of both pods", || {
        let summary: serde_json::Value = serde_json::from_str(&raw("stats/summary")).expect("a summary");
        let pods = summary["pods"].as_array().expect("pods").iter();
        let used = |pod: &&serde_json::Value| pod["memory"]["usageBytes"].as_u64() > Some(0);
        pods.filter(used).count() >= 2
    });
}

/// systemd writes the limits again that it knows.
fn reload_of_systemd_changes_nothing(machine: &Machine, story: &Kubectl) {
    machine.node.run(&["systemctl", "daemon-reload"]);
    check_limits(machine, story, "guaranteed", 64, Some(25_000));
    check_limits(machine, story, "burstable", 96, None);
}

fn resize_reaches_the_slice(machine: &Machine, story: &Kubectl) {
    let amounts = r#"{"cpu":"400m","memory":"80Mi"}"#;
    let patch = format!(
        r#"{{"spec":{{"containers":[{{"name":"main","resources":{{"limits":{amounts},"requests":{amounts}}}}}]}}}}"#
    );
    let id = container_id(story, "guaranteed");
    story.kubectl(&[
        "patch",
        "pod",
        "guaranteed",
        "--subresource",
        "resize",
        "-p",
        &patch,
    ]);
    let limit = "{.status.containerStatuses[0].resources.limits.memory}";
    story.wait_value("pod/guaranteed", limit, "80Mi");
    check_limits(machine, story, "guaranteed", 80, Some(40_000));
    assert_eq!(container_id(story, "guaranteed"), id, "it was not restarted");
}

/// The shell outlives the process that is ended: systemd removes the group of a container without processes at once, and containerd
/// may not have read the kernel's event by then.
fn container_without_memory_is_ended(story: &Kubectl) {
    pod(
        story,
        "eats",
        "restartPolicy: Never,",
        "{limits: {memory: 24Mi}}",
        "tail /dev/zero; sleep 2; exit 1",
    );
    let reason = "{.status.containerStatuses[0].state.terminated.reason}";
    story.wait_value("pod/eats", reason, "OOMKilled");
}

fn agent_that_starts_again_keeps_pods(machine: &Machine, story: &Kubectl) {
    pod(story, "orphan", "", "{}", SLEEP);
    story.wait("pod/orphan", "condition=Ready");
    let ids = ["guaranteed", "burstable"].map(|pod| container_id(story, pod));
    let (orphan, path) = slice(story, "orphan");
    assert!(!machine.node.folders(&path).is_empty());
    machine.node.run(&["pkill", "-KILL", "-f", "knarr agent "]);
    story.kubectl(&["delete", "pod", "orphan", "--force", "--grace-period=0"]);
    story.until("the orphan's slice to be gone", || {
        machine.node.folders(&path).is_empty() && machine.property(&orphan, "ActiveState") == "inactive"
    });
    machine.node.run(&["systemctl", "restart", "knarr"]);
    wait_ready(&machine.kubectl);
    machine.wait_node();
    check_limits(machine, story, "guaranteed", 80, Some(40_000));
    assert_eq!(
        ["guaranteed", "burstable"].map(|pod| container_id(story, pod)),
        ids
    );
    let restarts = "{.items[*].status.containerStatuses[*].restartCount}";
    assert_eq!(story.field("pods", restarts), "0 0 0");
}

fn deletion_leaves_no_slice(machine: &Machine, story: &Kubectl) {
    let paths = ["guaranteed", "burstable", "eats"].map(|pod| slice(story, pod).1);
    story.kubectl(&["delete", "pods", "--all"]);
    story.until("slices of pods to be gone", || {
        machine.slices_of_pods().is_empty()
    });
    for path in paths {
        assert_eq!(machine.node.folders(&path), Vec::<PathBuf>::new());
    }
}

/// Pods end by priority before anything else does, and are there again after the machine's next start.
fn machine_goes_down_after_its_pods(mut machine: Machine, story: &Kubectl) -> Machine {
    let inhibitors = machine.node.run(&["systemd-inhibit", "--list", "--no-pager"]);
    assert!(inhibitors.contains("kubelet"), "{inhibitors}");
    story.feed(
        &["apply"],
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 5000}",
    );
    let own = |class: &str| format!("priorityClassName: '{class}',");
    let script = |name: &str, pause: &str| {
        format!(
            "trap '{pause}; cut -d. -f1 /proc/uptime > /marks/{name}; exit 0' TERM; while :; do sleep 0.1; done"
        )
    };
    pod(
        story,
        "important",
        &own("important"),
        "{}",
        &script("important", "true"),
    );
    let plain = script("plain", "sleep 3");
    pod(story, "plain", "terminationGracePeriodSeconds: 30,", "{}", &plain);
    for name in ["plain", "important"] {
        story.wait(&format!("pod/{name}"), "condition=Ready");
    }
    machine.node.says(&["systemctl", "poweroff"]);
    machine.node.wait_down();
    let mark = |name: &str| {
        let text = std::fs::read_to_string(machine.folder.join("marks").join(name));
        text.expect("its end").trim().parse::<u64>().expect("a time")
    };
    assert!(mark("plain") <= mark("important"), "one after the other");
    let (host, folder, program) = (
        machine.host.clone(),
        machine.folder.clone(),
        machine.kubectl.program.clone(),
    );
    drop(machine);
    Machine::start(TEST, program, &host, &folder).expect("the machine starts again")
}

fn uninstall_leaves_no_slice(machine: &Machine) {
    machine.wait_node();
    machine.kubectl.kubectl(&[
        "run",
        "left",
        "--image",
        TOOLS,
        "--image-pull-policy=IfNotPresent",
        "--",
        "sh",
        "-c",
        SLEEP,
    ]);
    machine.kubectl.wait("pod/left", "condition=Ready");
    machine.node.run(&["systemctl", "stop", "knarr"]);
    let data_dir = machine.data_dir();
    let arguments = [
        "uninstall",
        "--stop",
        "--yes",
        "--cgroup-root",
        "/own-node",
        "--data-dir",
        &data_dir,
    ];
    let removed = machine.knarr(&arguments);
    assert!(removed.contains("removed"), "{removed}");
    assert_eq!(machine.node.folders("/own_node.slice"), Vec::<PathBuf>::new());
    let known = machine
        .node
        .run(&["systemctl", "list-units", "--plain", "--no-legend", "own_node*"]);
    assert_eq!(text(known.as_bytes()), "");
}
