//! kill -9 of server, agent and containerd: pods and their services go on, nothing acknowledged is lost, and no
//! container is started again.

use super::clients::{Watch, Writer};
use crate::support::cluster::{Cluster, container_ids, service_address};
use crate::support::kubectl::Kubectl;
use crate::support::network::{Load, ask};
use nix::sys::signal::Signal;
use node_sys::process::ProcessIdentity;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A service of two, and a pod that asks it by name without pause and counts.
const WORKLOAD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: knarr.test/tools:latest
        imagePullPolicy: IfNotPresent
        command: [httpd, -f, -p, '80', -h, /www]
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1, timeoutSeconds: 10}
        livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1, timeoutSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: asker}
spec:
  containers:
  - name: asker
    image: knarr.test/tools:latest
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'while true; do base ask http://web ; sleep 0.05; done']
";

/// Pods and clients that run while something is killed.
pub(crate) struct Running {
    pub(crate) story: Kubectl,
    address: SocketAddr,
    before: BTreeMap<String, String>,
    /// Complaints of the asking pod from before the service had endpoints.
    unanswered: usize,
    load: Option<Load>,
}

impl Running {
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        let story = cluster.namespace(name);
        story.feed(&["apply"], WORKLOAD);
        story.kubectl(&["rollout", "status", "deployment/web"]);
        story.wait("pod/asker", "condition=Ready");
        let address = service_address(&story, "web");
        story.until("an answer", || ask(&cluster.host, address).is_ok());
        story.until("an answer by name", || {
            story.kubectl(&["logs", "asker", "--tail=1"]) == "well\n"
        });
        let before = container_ids(&story);
        assert_eq!(before.len(), 3, "{before:?}");
        let load = Load::start(&cluster.host, address);
        let mut running = Self {
            story,
            address,
            before,
            unanswered: 0,
            load: Some(load),
        };
        running.unanswered = running.asked().1.len();
        running
    }

    /// Number of answers by name that the asking pod has had, and other lines of its log.
    fn asked(&self) -> (usize, Vec<String>) {
        let log = self.story.kubectl(&["logs", "asker"]);
        let (well, other): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| *line == "well");
        (well.len(), other.into_iter().map(str::to_owned).collect())
    }

    /// Checks after the outage that everything was answered, names are still answered, and the same containers run.
    #[track_caller]
    pub(crate) fn end(mut self, names: Names) {
        let (well, _) = self.asked();
        self.story
            .until("more answers by name", || self.asked().0 > well + 3);
        if names == Names::AllTheTime {
            let complaints = self.asked().1;
            assert_eq!(
                complaints[self.unanswered..],
                [""; 0],
                "names were answered all the time"
            );
        }
        self.load.take().expect("it is ended once").end_well();
        for pod in self.before.keys() {
            self.story.wait(&format!("pod/{pod}"), "condition=Ready");
        }
        assert_eq!(
            container_ids(&self.story),
            self.before,
            "no container was started again"
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The next story is not to meet this one's pods.
        let namespace = self.story.namespace.clone().unwrap_or_default();
        self.story
            .try_kubectl(&["delete", "namespace", &namespace, "--wait=false"]);
    }
}

/// Availability of name resolution during the outage.
#[derive(PartialEq, Eq)]
pub(crate) enum Names {
    AllTheTime,
    Again,
}

fn recorded(cluster: &Cluster, file: &str) -> ProcessIdentity {
    let text = std::fs::read_to_string(cluster.data_dir().join("agent").join(file)).expect("a pid file");
    ProcessIdentity::from_text(&text).expect("a pid and a start time")
}

pub(crate) const AGENT: &str = "agent.pid";
pub(crate) const CONTAINERD: &str = "containerd/containerd.pid";

/// kill -9, and until another has taken its place.
pub(crate) fn kill_and_wait(cluster: &Cluster, file: &str) {
    let old = recorded(cluster, file);
    assert!(old.signal(Signal::SIGKILL), "{file} names a running process");
    cluster.kubectl.until(&format!("another process in {file}"), || {
        let now = recorded(cluster, file);
        now != old && now.is_alive()
    });
}

/// New pods can be had, and talked to.
pub(crate) fn works(story: &Kubectl) {
    let name = "after";
    let run = [
        "run",
        name,
        "--image=knarr.test/tools:latest",
        "--image-pull-policy=IfNotPresent",
        "--",
    ];
    story.kubectl(&[&run[..], &["sleep", "10000"]].concat());
    story.wait(&format!("pod/{name}"), "condition=Ready");
    assert_eq!(story.kubectl(&["exec", name, "--", "echo", "hello"]), "hello\n");
    story.kubectl(&["delete", "pod", name, "--now"]);
}

/// The namespace's revision.
fn now(story: &Kubectl) -> u64 {
    let namespace = story.namespace.as_deref().expect("it has one");
    let list = story.kubectl(&[
        "get",
        "--raw",
        &format!("/api/v1/namespaces/{namespace}/configmaps"),
    ]);
    let list: serde_json::Value = serde_json::from_str(&list).expect("a list");
    let revision = list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok());
    revision.expect("a list has a revision")
}

pub(crate) fn a_killed_server_loses_nothing_and_nobody_notices(cluster: &Cluster) {
    let running = Running::start(cluster, "server-killed");
    let story = running.story.clone();
    let mut watch = Watch::start(&story, now(&story));
    let writers: Vec<Writer> = (0..3)
        .map(|number| Writer::start(&story, &format!("kept-{number}")))
        .collect();
    let mut seen = watch.read(|seen| seen.len() >= 10);
    cluster.kill_server();
    // What was on its way is still delivered; then the connection ends.
    seen.extend(watch.read(|_| false));
    assert!(
        ask(&cluster.host, running.address).is_ok(),
        "services go on without the server"
    );
    cluster.start_server();
    let last = seen.last().expect("ten were seen").1;
    let mut watch = Watch::start(&story, last);
    seen.extend(watch.read(|seen| seen.len() >= 10));
    let acknowledged: BTreeSet<String> = writers.into_iter().flat_map(Writer::end).collect();
    let listed = story.kubectl(&["get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"]);
    let listed: BTreeSet<String> = listed.split(' ').map(str::to_owned).collect();
    let missing: Vec<&String> = acknowledged.difference(&listed).collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    let kept: BTreeSet<&String> = listed.iter().filter(|name| name.starts_with("kept-")).collect();
    let so_far: BTreeSet<String> = seen.iter().map(|(name, _)| name.clone()).collect();
    let left = kept.iter().filter(|name| !so_far.contains(**name)).count();
    seen.extend(watch.read(|more| more.len() >= left));
    let names: BTreeSet<&String> = seen
        .iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("kept-"))
        .collect();
    assert_eq!(names, kept, "the watch that went on has seen all of them");
    assert!(
        seen.is_sorted_by(|one, next| one.1 < next.1),
        "each once, and in order"
    );
    works(&story);
    running.end(Names::AllTheTime);
}

pub(crate) fn a_killed_agent_is_started_again(cluster: &Cluster) {
    let running = Running::start(cluster, "agent-killed");
    kill_and_wait(cluster, AGENT);
    works(&running.story);
    running.end(Names::AllTheTime);
}

pub(crate) fn an_adopted_agent_is_watched_too(cluster: &Cluster) {
    let running = Running::start(cluster, "adopted");
    let agent = recorded(cluster, AGENT);
    cluster.kill_server();
    cluster.start_server();
    assert_eq!(
        recorded(cluster, AGENT),
        agent,
        "a server that starts finds the agent that runs"
    );
    kill_and_wait(cluster, AGENT);
    works(&running.story);
    running.end(Names::AllTheTime);
}

/// The steps of `docs/updating.md` on a machine with a server.
pub(crate) fn an_update_replaces_server_and_agent_and_no_container(cluster: &Cluster) {
    let running = Running::start(cluster, "updated");
    let (agent, containerd) = (recorded(cluster, AGENT), recorded(cluster, CONTAINERD));
    let copy = cluster.own_dir().join("knarr-updated");
    cluster.kill_server();
    cluster.start_server_of_copy(&copy);
    cluster.kubectl.until("an agent of the new binary", || {
        let now = recorded(cluster, AGENT);
        let program = std::fs::read_link(format!("/proc/{}/exe", now.pid));
        now != agent && program.is_ok_and(|program| program == copy)
    });
    assert_eq!(recorded(cluster, CONTAINERD), containerd);
    works(&running.story);
    running.end(Names::AllTheTime);
    cluster.kill_server();
    cluster.start_server();
}

pub(crate) fn a_killed_containerd_is_started_again(cluster: &Cluster) {
    let running = Running::start(cluster, "containerd-killed");
    kill_and_wait(cluster, CONTAINERD);
    works(&running.story);
    running.end(Names::AllTheTime);
}

/// Bytes that a pipe holds before a writer waits.
const PIPE_BYTES: usize = 64 << 10;

/// Processes without rights whose command lines are containerd's, a shim's and the agent's, in a mount namespace that
/// they made themselves.
struct Decoys(Vec<std::process::Child>);

impl Decoys {
    fn start(cluster: &Cluster, agent: &ProcessIdentity) -> Self {
        let directory = cluster.agent_dir().join("containerd");
        let (config, socket) = (directory.join("config.toml"), directory.join("containerd.sock"));
        let (config, socket) = (config.display().to_string(), socket.display().to_string());
        let line = std::fs::read(format!("/proc/{}/cmdline", agent.pid)).expect("the agent runs");
        let line = String::from_utf8(line).expect("a command line in UTF-8");
        let words = line.split_terminator('\0').skip(1);
        let lines = [
            vec!["--config", config.as_str(), "--log-level", "warn"],
            vec!["containerd-shim-runc-v2", "-address", socket.as_str()],
            words.collect(),
        ];
        Self(lines.iter().map(|line| Self::one(line)).collect())
    }

    /// `echo` takes all words; it stays since its output is not read.
    fn one(words: &[&str]) -> std::process::Child {
        use std::os::unix::process::CommandExt;
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        std::io::Write::write_all(&mut writer, &[0; PIPE_BYTES]).expect("room for what a pipe holds");
        let mut decoy = std::process::Command::new("unshare");
        let script = "exec 3<&0; exec /bin/echo \"$@\"";
        decoy.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "echo"]);
        let decoy = decoy.args(words).stdin(reader).stdout(writer).uid(65534).spawn();
        decoy.expect("unshare is installed")
    }

    fn namespaces(&self) -> Vec<PathBuf> {
        self.0.iter().map(|decoy| mount_namespace(decoy.id())).collect()
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        for decoy in &mut self.0 {
            let _ = decoy.kill();
            let _ = decoy.wait();
        }
    }
}

fn mount_namespace(pid: u32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).expect("it runs")
}

pub(crate) fn all_killed_at_once_come_back(cluster: &Cluster) {
    let running = Running::start(cluster, "all-killed");
    let (agent, containerd) = (recorded(cluster, AGENT), recorded(cluster, CONTAINERD));
    let decoys = Decoys::start(cluster, &agent);
    let namespace = mount_namespace(containerd.pid);
    // The server first, or it would start the agent again.
    cluster.kill_server();
    assert!(agent.signal(Signal::SIGKILL) && containerd.signal(Signal::SIGKILL));
    assert!(
        ask(&cluster.host, running.address).is_ok(),
        "services go on with nobody left"
    );
    cluster.start_server();
    cluster.kubectl.until("a new agent and containerd", || {
        let (now, runtime) = (recorded(cluster, AGENT), recorded(cluster, CONTAINERD));
        now != agent && now.is_alive() && runtime != containerd && runtime.is_alive()
    });
    for file in [AGENT, CONTAINERD] {
        assert_eq!(mount_namespace(recorded(cluster, file).pid), namespace, "{file}");
    }
    assert!(!decoys.namespaces().contains(&namespace), "decoys have another");
    drop(decoys);
    works(&running.story);
    running.end(Names::Again);
}

/// `systemctl restart nftables` and its like take the rules of all programs away.
pub(crate) fn a_flushed_ruleset_is_written_again(cluster: &Cluster) {
    let mut running = Running::start(cluster, "flushed");
    // Between the flush and the repair no service answers.
    drop(running.load.take());
    let nft = |arguments: &[&str]| {
        let output = cluster.host.command("nft").args(arguments).output();
        String::from_utf8(output.expect("nft runs").stdout).expect("its output is text")
    };
    assert!(
        cluster.host.network_namespace().is_some(),
        "the rules are the cluster's own"
    );
    for _ in 0..3 {
        nft(&["flush", "ruleset"]);
        running
            .story
            .until("an answer", || ask(&cluster.host, running.address).is_ok());
    }
    running.story.until("every table", || {
        let tables = nft(&["list", "tables"]);
        [
            "ip knarr-proxy",
            "ip knarr-network",
            "ip6 knarr-network",
            "ip knarr-dns",
            "ip knarr-host-ports",
        ]
        .iter()
        .all(|table| tables.contains(table))
    });
    nft(&["delete", "table", "ip6", "knarr-network"]);
    running.story.until("the table of IPv6", || {
        nft(&["list", "tables"]).contains("ip6 knarr-network")
    });
    let (well, _) = running.asked();
    running
        .story
        .until("more answers by name", || running.asked().0 > well + 3);
}

/// A pod that serves at this port of the node.
fn at_host_port(name: &str, port: u16) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: knarr.test/tools:latest
    imagePullPolicy: IfNotPresent
    command: [httpd, -f, -p, '80', -h, /www]
    ports: [{{containerPort: 80, hostPort: {port}}}]
"
    )
}

pub(crate) fn a_host_port_outlives_the_agent_and_not_its_pod(cluster: &Cluster) {
    const PORTS: [(&str, u16); 2] = [("stays", 8090), ("goes", 8091)];
    let story = cluster.namespace("ports-killed");
    for (name, port) in PORTS {
        story.feed(&["apply"], &at_host_port(name, port));
    }
    let [stays, goes] = PORTS.map(|(name, port)| {
        story.wait(&format!("pod/{name}"), "condition=Ready");
        let node = story.field(&format!("pod/{name}"), "{.status.hostIP}");
        let address: SocketAddr = format!("{node}:{port}").parse().expect("an address and a port");
        assert_eq!(ask(&cluster.host, address).as_deref(), Ok("well"));
        address
    });
    let load = Load::start(&cluster.host, stays);
    assert!(recorded(cluster, AGENT).signal(Signal::SIGSTOP));
    story.kubectl(&["delete", "pod", "goes", "--force", "--grace-period=0"]);
    kill_and_wait(cluster, AGENT);
    story.until("no answer", || ask(&cluster.host, goes).is_err());
    works(&story);
    load.end_well();
    story.kubectl(&["delete", "pod", "stays", "--now"]);
    assert!(ask(&cluster.host, stays).is_err());
}

/// One that would be restarted for memory, and not for processor time.
const RESIZED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: main}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: knarr.test/tools:latest
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
";

pub(crate) fn a_resize_that_no_agent_heard_of_is_made(cluster: &Cluster) {
    let story = cluster.namespace("resized-unheard");
    story.feed(&["apply"], RESIZED);
    story.wait("pod/main", "condition=Ready");
    let before = container_ids(&story);
    let agent = recorded(cluster, AGENT);
    assert!(agent.signal(Signal::SIGSTOP), "{AGENT} names a running process");
    let amounts = r#"{"cpu":"200m","memory":"64Mi"}"#;
    let container = format!(r#"{{"name":"main","resources":{{"limits":{amounts},"requests":{amounts}}}}}"#);
    let patch = format!(r#"{{"spec":{{"containers":[{container}]}}}}"#);
    story.kubectl(&["patch", "pod", "main", "--subresource", "resize", "-p", &patch]);
    kill_and_wait(cluster, AGENT);
    story.wait_value(
        "pod/main",
        "{.status.containerStatuses[0].resources.limits.cpu}",
        "200m",
    );
    let quota = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu*/cpu.cfs_quota_us 2>/dev/null | head -n 1 | cut -d ' ' -f 1";
    assert_eq!(
        story.kubectl(&["exec", "main", "--", "sh", "-c", quota]),
        "20000\n"
    );
    assert_eq!(container_ids(&story), before, "no container was started again");
    story.kubectl(&["delete", "pod", "main", "--now"]);
}
