//! Containers that start, end and start again.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;
use crate::support::network::inside;
use crate::support::processes;

const STATUS: &str = "{.status.containerStatuses[0]";

fn value(path: &str) -> String {
    format!("{STATUS}.{path}}}")
}

/// The one process on this machine with exactly these arguments, once there is one.
fn process_with(story: &Kubectl, arguments: &[&str]) -> i32 {
    let wanted: String = arguments.iter().map(|word| format!("{word}\0")).collect();
    let mut found = Vec::new();
    story.until("a process", || {
        found = processes(|line| line == wanted.as_bytes());
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "processes with {arguments:?}");
    i32::try_from(found[0]).expect("pids are small")
}

pub(crate) fn a_killed_container_restarts_and_is_counted(cluster: &Cluster) {
    let story = cluster.namespace("killed");
    let seconds = format!("7001{}", std::process::id());
    story.kubectl(&run(
        "main",
        &["--", "sh", "-c", &format!("echo began; exec sleep {seconds}")],
    ));
    story.wait("pod/main", "condition=Ready");
    let before = story.field("pod/main", &value("containerID"));
    let pid = nix::unistd::Pid::from_raw(process_with(&story, &["sleep", &seconds]));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    story.wait_value("pod/main", &value("restartCount"), "1");
    story.wait("pod/main", "condition=Ready");
    assert_ne!(story.field("pod/main", &value("containerID")), before);
    assert_eq!(
        story.field("pod/main", &value("lastState.terminated.exitCode")),
        "137"
    );
    assert_eq!(
        story.field("pod/main", &value("lastState.terminated.reason")),
        "Error"
    );
    assert_eq!(
        story.field("pod/main", &value("lastState.terminated.containerID")),
        before
    );
    assert_eq!(story.kubectl(&["logs", "-p", "main"]), "began\n");
}

/// `kubectl run NAME` with the tests' image.
fn run<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    const IMAGE: &str = "--image=knarr.test/tools:latest";
    [&["run", name, IMAGE, "--image-pull-policy=IfNotPresent"], more].concat()
}

pub(crate) fn a_crashing_container_waits_longer_each_time(cluster: &Cluster) {
    let story = cluster.namespace("crashing");
    story.kubectl(&run(
        "main",
        &["--", "sh", "-c", "echo last words > /dev/termination-log; exit 3"],
    ));
    story.wait_value("pod/main", &value("state.waiting.reason"), "CrashLoopBackOff");
    assert_eq!(
        story.field("pod/main", &value("lastState.terminated.exitCode")),
        "3"
    );
    assert_eq!(
        story.field("pod/main", &value("lastState.terminated.message")),
        "last words\n"
    );
    // On a busy machine the first waits may be over before they are seen.
    let seconds = || {
        let said = story.field("pod/main", &value("state.waiting.message"));
        let rest = said.strip_prefix("back-off ")?;
        let (wait, rest) = rest.split_once("s restarting failed container=main pod=main_crashing(")?;
        assert!(rest.ends_with(')'), "{said}");
        let (minutes, seconds) = wait.split_once('m').unwrap_or(("0", wait));
        Some(60 * minutes.parse::<u32>().ok()? + seconds.parse::<u32>().ok()?)
    };
    let mut first = None;
    story.until("a wait", || {
        first = seconds();
        first.is_some()
    });
    assert!(
        first.is_some_and(|first| first >= 10 && first % 10 == 0),
        "{first:?}"
    );
    story.until("a longer wait", || seconds() > first);
    assert!(story.kubectl(&["get", "pods"]).contains("CrashLoopBackOff"));
    let events = story.kubectl(&["events", "--for", "pod/main"]);
    assert!(
        events.contains("Back-off restarting failed container main in pod main_crashing("),
        "{events}"
    );
}

pub(crate) fn a_job_completes(cluster: &Cluster) {
    let story = cluster.namespace("jobs");
    // Each pod fails until the one before it has left a mark, so that a retry is seen too.
    let job = format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: OnFailure
      volumes: [{{name: once, emptyDir: {{}}}}]
      containers:
      - name: work
        image: {TOOLS}
        imagePullPolicy: IfNotPresent
        volumeMounts: [{{name: once, mountPath: /once}}]
        command: [sh, -c, 'test -f /once/tried && echo done && exit 0; touch /once/tried; exit 1']
"
    );
    story.feed(&["apply"], &job);
    story.wait("job/work", "condition=Complete");
    assert_eq!(story.field("job/work", "{.status.succeeded}"), "3");
    let restarts = story.field("pods", "{.items[*].status.containerStatuses[0].restartCount}");
    assert_eq!(restarts, "1 1 1");
    assert_eq!(story.kubectl(&["logs", "job/work"]).trim(), "done");
    let listed = story.kubectl(&["get", "job", "work"]);
    assert!(listed.contains("Complete") && listed.contains("3/3"), "{listed}");
    story.kubectl(&["delete", "job", "work"]);
    story.until("its pods to be gone", || {
        story.kubectl(&["get", "pods", "-o", "name"]).is_empty()
    });
}

pub(crate) fn init_containers_and_sidecars_run_in_order(cluster: &Cluster) {
    let story = cluster.namespace("order");
    let container = |name: &str, script: &str, more: &str| {
        format!(
            "{{name: {name}, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sh, -c, '{script}'], \
             volumeMounts: [{{name: shared, mountPath: /shared}}]{more}}}"
        )
    };
    let first = container("first", "echo first >> /shared/order", "");
    let sidecar = container(
        "beside",
        "trap \"echo beside ended >> /shared/order; exit 0\" TERM; echo beside >> /shared/order; while true; do sleep 0.1; done",
        ", restartPolicy: Always, startupProbe: {exec: {command: [grep, beside, /shared/order]}, periodSeconds: 1, timeoutSeconds: 10}",
    );
    let second = container("second", "echo second >> /shared/order", "");
    let main = container("main", "echo main >> /shared/order; cat /shared/order", "");
    let pod = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: main}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  volumes: [{{name: shared, emptyDir: {{}}}}]
  initContainers: [{first}, {sidecar}, {second}]
  containers: [{main}]
"
    );
    story.feed(&["apply"], &pod);
    story.wait_value("pod/main", "{.status.phase}", "Succeeded");
    assert_eq!(
        story.kubectl(&["logs", "main", "-c", "main"]),
        "first\nbeside\nsecond\nmain\n"
    );
    let exits = "{range .status.initContainerStatuses[*]}{.name}={.state.terminated.exitCode} {end}";
    assert_eq!(
        story.field("pod/main", exits),
        "first=0 beside=0 second=0 ",
        "the sidecar ended, last"
    );
    let failing = pod
        .replace("echo first >> /shared/order", "exit 4")
        .replace("metadata: {name: main}", "metadata: {name: failing}");
    story.feed(&["apply"], &failing);
    story.wait_value("pod/failing", "{.status.phase}", "Failed");
    assert!(story.kubectl(&["get", "pod", "failing"]).contains("Init:Error"));
}

/// A pod whose container writes what happens to it into a folder of this machine.
fn diary(folder: &tempfile::TempDir, grace: u32, script: &str, hooks: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: main}}
spec:
  terminationGracePeriodSeconds: {grace}
  volumes: [{{name: diary, hostPath: {{path: '{}', type: Directory}}}}]
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    volumeMounts: [{{name: diary, mountPath: /diary}}]
    command: [sh, -c, '{script}']
    {hooks}
",
        folder.path().display()
    )
}

fn deleted(story: &Kubectl, folder: &tempfile::TempDir) -> String {
    story.wait("pod/main", "condition=Ready");
    story.until("the script to have begun", || {
        folder.path().join("began").is_file()
    });
    story.kubectl(&["delete", "pod", "main"]);
    std::fs::read_to_string(folder.path().join("page")).unwrap_or_default()
}

pub(crate) fn hooks_run_before_the_signal(cluster: &Cluster) {
    let story = cluster.namespace("hooks");
    let folder = tempfile::tempdir().expect("a folder");
    let script = "trap \"echo signal >> /diary/page; exit 0\" TERM; touch /diary/began; while true; do sleep 0.1; done";
    let hooks = "lifecycle:
      postStart: {exec: {command: [sh, -c, \"echo started >> /diary/page\"]}}
      preStop: {exec: {command: [sh, -c, \"sleep 1; echo stopping >> /diary/page\"]}}";
    story.feed(&["apply"], &diary(&folder, 60, script, hooks));
    assert_eq!(deleted(&story, &folder), "started\nstopping\nsignal\n");
}

/// Output of a hook may be secret: events, which more people read, do not contain it.
pub(crate) fn a_failed_hook_is_told_without_what_it_printed(cluster: &Cluster) {
    let story = cluster.namespace("badhook");
    let folder = tempfile::tempdir().expect("a folder");
    let hook = "lifecycle: {postStart: {exec: {command: [sh, -c, \"echo hush; exit 3\"]}}}";
    story.feed(&["apply"], &diary(&folder, 1, "sleep 10000", hook));
    let events = || story.kubectl(&["events", "--for", "pod/main"]);
    story.until("an event of it", || events().contains("PostStartHook failed"));
    story.wait_value("pod/main", &value("state.waiting.reason"), "CrashLoopBackOff");
    assert!(!events().contains("hush"), "{}", events());
}

/// Its folder goes with the pod's end, and with it the file that the last words were in.
pub(crate) fn last_words_stay_when_a_pod_has_ended(cluster: &Cluster) {
    let story = cluster.namespace("ended");
    let script = "echo bye > /dev/termination-log; exit 2";
    story.kubectl(&run("main", &["--restart=Never", "--", "sh", "-c", script]));
    story.wait_value("pod/main", "{.status.phase}", "Failed");
    let uid = story.field("pod/main", "{.metadata.uid}");
    let folder = cluster.data_dir().join("agent/pods").join(uid);
    story.until("its folder to be gone", || !folder.exists());
    // The agent receives a change and reports the pod anew.
    let conditions = "{.status.conditions[?(@.type==\"Ready\")].observedGeneration}";
    let before = story.field("pod/main", conditions);
    story.kubectl(&[
        "patch",
        "pod",
        "main",
        "-p",
        "{\"spec\":{\"activeDeadlineSeconds\":1000}}",
    ]);
    story.until("the agent to have looked again", || {
        story.field("pod/main", conditions) != before
    });
    assert_eq!(
        story.field("pod/main", &value("state.terminated.message")),
        "bye\n"
    );
}

pub(crate) fn a_container_that_ignores_the_signal_is_killed(cluster: &Cluster) {
    let story = cluster.namespace("stubborn");
    let folder = tempfile::tempdir().expect("a folder");
    let script =
        "trap \"echo signal >> /diary/page\" TERM; touch /diary/began; while true; do sleep 0.1; done";
    story.feed(&["apply"], &diary(&folder, 2, script, ""));
    assert_eq!(deleted(&story, &folder), "signal\n", "it was asked first, once");
}

/// A pod of one container, described in one line of YAML, which would wait for an hour.
fn patient(name: &str, grace: u32, container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: {grace}, containers: [{{name: main, imagePullPolicy: IfNotPresent, {container}}}]}}}}"
    )
}

const STUBBORN: &str = "command: [sh, -c, 'trap : TERM; while true; do sleep 0.1; done']";

pub(crate) fn a_deletion_ends_what_a_pod_waits_for(cluster: &Cluster) {
    let story = cluster.namespace("impatient");
    // It takes connections, in the kernel, and never answers.
    let silent = inside(&cluster.host, || {
        std::net::TcpListener::bind("127.0.0.1:0").expect("a free port")
    });
    let silent = silent.join().expect("binding does not panic");
    let registry = silent.local_addr().expect("it has an address");
    let hook = "lifecycle: {postStart: {exec: {command: [sleep, '3600']}}}";
    let probe = "livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 3600}";
    let stop = "lifecycle: {preStop: {sleep: {seconds: 3600}}}";
    let pods = [
        patient("pulls", 1, &format!("image: '{registry}/app:v1'")),
        patient(
            "starts",
            1,
            &format!("image: {TOOLS}, command: [sleep, '10000'], {hook}"),
        ),
        patient("restarts", 1, &format!("image: {TOOLS}, {STUBBORN}, {probe}")),
        patient("stops", 3600, &format!("image: {TOOLS}, {STUBBORN}, {stop}")),
    ];
    story.feed(&["apply"], &pods.join("\n---\n"));
    let says = |pod: &str, words: &str| {
        story.until(&format!("{pod} to say {words}"), || {
            story
                .kubectl(&["events", "--for", &format!("pod/{pod}")])
                .contains(words)
        });
    };
    says("pulls", "Pulling image");
    says("starts", "Started");
    says("restarts", "failed liveness probe, will be restarted");
    says("stops", "Started");
    story.kubectl(&["delete", "pod", "stops", "--wait=false"]);
    says("stops", "Stopping container main");
    story.kubectl(&["delete", "pod", "stops", "--grace-period=1", "--timeout=60s"]);
    for pod in ["pulls", "starts", "restarts"] {
        story.kubectl(&["delete", "pod", pod, "--timeout=60s"]);
    }
    drop(silent);
}
