//! Pods and users that take whatever is not bounded, and others beside them that go on.

use crate::commands::Session;
use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::Kubectl;
use crate::support::network::inside;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

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
    for name in ["pod/good", "pod/bomb"] {
        story.wait(name, "condition=Ready");
    }
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

/// Reports whether this machine lets a process be spared when memory runs out: root in a container may lack the right.
fn can_spare() -> bool {
    let lowered = std::process::Command::new("sh")
        .args(["-c", "echo -999 > /proc/self/oom_score_adj"])
        .stderr(std::process::Stdio::null())
        .status();
    lowered.expect("a shell runs").success()
}

pub(crate) fn memory_that_runs_out_ends_the_least_promised_first(cluster: &Cluster) {
    let story = cluster.namespace("scores");
    let limits = "limits: {cpu: 10m, memory: 64Mi}";
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("the kernel says");
    let guaranteed = if can_spare() { "-997\n" } else { &own };
    for (name, resources, score) in [("best", "", "1000\n"), ("guaranteed", limits, guaranteed)] {
        story.feed(
            &["apply"],
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, containers: \
                 [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, resources: {{{resources}}}, \
                 command: [cat, /proc/self/oom_score_adj]}}]}}}}"
            ),
        );
        story.wait_value(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
        assert_eq!(story.kubectl(&["logs", name]), score, "{name}");
    }
}

/// Streams of one pod that an API server lets ordinary users have.
const STREAMS_MAX: usize = 64;

/// The first line of an answer, and the connection that it comes over.
fn follow(proxy: SocketAddr, path: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(proxy).expect("the proxy listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("the proxy reads");
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).expect("the proxy answers");
    (line.trim_end().to_owned(), answer)
}

pub(crate) fn a_users_followers_leave_places_to_others(cluster: &Cluster) {
    let story = cluster.namespace("followers");
    story.kubectl(&[
        "create",
        "rolebinding",
        "reads",
        "--clusterrole=view",
        "--user=tenant",
    ]);
    pod(&story, "main", "echo began; sleep 100000");
    story.wait("pod/main", "condition=Ready");
    let mut proxy = Session::start(story.command(&["proxy", "--port=0", "--as=tenant"]));
    let address = proxy.line();
    let address = address
        .rsplit(' ')
        .next()
        .expect("an address")
        .parse()
        .expect("an address");
    let opened = inside(&cluster.host, move || {
        let path = "/api/v1/namespaces/followers/pods/main/log?follow=true";
        (0..STREAMS_MAX + 16)
            .map(|_| follow(address, path))
            .collect::<Vec<_>>()
    });
    let opened = opened.join().expect("every request is answered");
    let answered = |status: &str| opened.iter().filter(|(line, _)| line.contains(status)).count();
    assert_eq!((answered(" 200 "), answered(" 429 ")), (STREAMS_MAX, 16));
    // The pod is not closed to its administrator.
    assert_eq!(story.kubectl(&["exec", "main", "--", "echo", "well"]), "well\n");
    assert_eq!(story.kubectl(&["logs", "main"]), "began\n");
    drop(opened);
    story.until("a place to be free again", || {
        let read = story.try_kubectl(&["logs", "main", "--as=tenant"]);
        read.status.success()
    });
}

pub(crate) fn a_path_that_names_no_file_is_told_once_in_a_while(cluster: &Cluster) {
    let story = cluster.namespace("paths");
    story.kubectl(&["create", "configmap", "files", "--from-literal=k=v"]);
    let mounts = |name: &str, path: &str| {
        story.feed(
            &["apply"],
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 0, \
                 volumes: [{{name: files, configMap: {{name: files, items: [{{key: k, path: {path}}}]}}}}], \
                 containers: [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sleep, '100000'], \
                 volumeMounts: [{{name: files, mountPath: /files}}]}}]}}}}"
            ),
        );
    };
    mounts("dot", "'.'");
    mounts("nul", "\"a\\0b\"");
    mounts("odd", "'./a/.//b'");
    story.wait("pod/odd", "condition=Ready");
    assert_eq!(story.kubectl(&["exec", "odd", "--", "cat", "/files/a/b"]), "v");
    for (name, words) in [
        ("dot", "must name a file in the volume"),
        ("nul", "must not contain a NUL character"),
    ] {
        let mut told = String::new();
        story.until("its event", || {
            told = story.kubectl(&[
                "get",
                "events",
                "-o",
                "wide",
                "--field-selector",
                &format!("involvedObject.name={name},reason=FailedMount"),
            ]);
            told.contains(words)
        });
        assert!(!told.contains('\0'), "{told:?}");
    }
}
