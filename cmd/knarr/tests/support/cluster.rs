//! A whole cluster for a test binary: `knarr server` with its agent and containerd, in a network of its own.

use super::kubectl::{Kubectl, kubectl_or_skip, skipped};
use super::{Host, image, processes, server_command, spawn, wait_ready};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use tempfile::TempDir;

const PORT: u16 = 6443;

/// Bytes that images, pods and logs of the suites take at most.
const NEEDED_DISK: u64 = 4 << 30;

/// Bounds in bytes, where an agent's own are parts of the file system: a developer's disk may be full beyond those.
const EVICTION: &str = "--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi";
const KEEPS_IMAGES: [&str; 2] = ["--image-gc-high-threshold=100", "--image-gc-low-threshold=99"];

/// A running cluster. [`Cluster::remove`] takes it down; what is left otherwise is for `cargo xtask down`.
pub(crate) struct Cluster {
    pub(crate) host: Host,
    pub(crate) kubectl: Kubectl,
    dir: TempDir,
    server: Mutex<Child>,
    flags: Vec<String>,
}

/// The first prerequisite of a cluster that this machine lacks.
fn missing_prerequisite() -> Option<&'static str> {
    let programs = ["containerd", "runc", "nft", "ip"];
    if !nix::unistd::geteuid().is_root() {
        Some("this is not root")
    } else if programs
        .iter()
        .any(|name| node_sys::exec::find_program(name).is_none())
    {
        Some("containerd, runc, nftables or iproute2 is not installed")
    } else if !image::can_be_made() {
        Some("busybox-static is not installed")
    } else if free_disk() < NEEDED_DISK {
        Some("fewer than 4 GiB are free where temporary files lie")
    } else {
        None
    }
}

fn free_disk() -> u64 {
    let disk = node_sys::fs::usage(&std::env::temp_dir()).expect("a file system");
    disk.available_bytes
}

/// The suite's flags with those for a disk that is nearly full.
fn with_bounds_of_disk(flags: &[String], own: &str) -> Vec<String> {
    let mut flags: Vec<String> = flags.iter().map(|flag| flag.replace("DIR", own)).collect();
    if !flags.iter().any(|flag| flag.starts_with("--eviction-hard")) {
        flags.push(EVICTION.to_owned());
    }
    flags.extend(KEEPS_IMAGES.map(str::to_owned));
    flags
}

impl Cluster {
    /// A cluster with a Ready node and the tests' image; or `None` after printing what is skipped.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, &[])
    }

    /// The same with further flags; `DIR` in them is a directory of the cluster's own.
    pub(crate) fn start_with(test: &str, flags: &[String]) -> Option<Self> {
        Self::start_through(test, flags, &[])
    }

    /// The same with a server that another program starts.
    pub(crate) fn start_through(test: &str, flags: &[String], through: &[OsString]) -> Option<Self> {
        if let Some(reason) = missing_prerequisite() {
            skipped(test, reason);
            return None;
        }
        let program = kubectl_or_skip(test)?;
        let dir = tempfile::tempdir().expect("a directory");
        let name = format!("{test}-{}", std::process::id());
        let host = Host::prepare(Some(name)).expect("a network of its own");
        let own = dir.path().display().to_string();
        let flags = with_bounds_of_disk(flags, &own);
        let server = Mutex::new(start_server(dir.path(), &host, &flags, through));
        let kubectl = Kubectl {
            program,
            folder: dir.path().to_owned(),
            host: host.clone(),
            namespace: None,
        };
        let cluster = Self {
            host,
            kubectl,
            dir,
            server,
            flags,
        };
        cluster.wait_node();
        cluster.import();
        Some(cluster)
    }

    fn wait_node(&self) {
        wait_ready(&self.kubectl);
        self.kubectl.until("a node", || {
            !self.kubectl.kubectl(&["get", "nodes", "-o", "name"]).is_empty()
        });
        let node = self.kubectl.kubectl(&["get", "nodes", "-o", "name"]);
        self.kubectl.wait(node.trim(), "condition=Ready");
    }

    fn import(&self) {
        let archive = self.dir.path().join("tools.tar");
        image::write(&archive, self.dir.path());
        let mut import = self.host.command(env!("CARGO_BIN_EXE_knarr"));
        import
            .args(["image", "import", "--data-dir"])
            .arg(self.data_dir());
        let output = import.arg(archive).output().expect("the built binary starts");
        assert!(output.status.success(), "{}", super::text(&output.stderr));
    }

    /// The agent's files, as the kernel and process lists name them.
    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.dir
            .path()
            .join("elsewhere")
            .canonicalize()
            .expect("it is there")
    }

    /// The directory that `DIR` in a flag stands for.
    pub(crate) fn own_dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// kubectl in a namespace made for one story.
    pub(crate) fn namespace(&self, name: &str) -> Kubectl {
        self.kubectl.kubectl(&["create", "namespace", name]);
        let story = self.kubectl.within(name);
        // Pods are refused until it is there.
        story.wait("serviceaccount/default", "create");
        story
    }

    /// kill -9 of the server; agent, containerd and pods get no signal.
    pub(crate) fn kill_server(&self) {
        let mut server = self.server.lock().expect("one story at a time kills it");
        // What runs it is `nsenter`, which has become the server itself.
        server.kill().expect("the server runs");
        server.wait().expect("it ends");
    }

    pub(crate) fn start_server(&self) {
        self.start_server_through(&[]);
    }

    /// The server of another binary, which is a copy of this one.
    pub(crate) fn start_server_of_copy(&self, copy: &Path) {
        let copy = copy.display();
        let script = format!(r#"cp "$0" '{copy}' && exec '{copy}' "$@""#);
        self.start_server_through(&["sh".into(), "-c".into(), script.into()]);
    }

    fn start_server_through(&self, through: &[OsString]) {
        *self.server.lock().expect("one story at a time kills it") =
            start_server(self.dir.path(), &self.host, &self.flags, through);
        wait_ready(&self.kubectl);
    }

    /// Takes everything down and says what is left of it on this machine.
    pub(crate) fn remove(&self) -> Result<(), String> {
        let data_dir = self.data_dir();
        let knarr = Path::new(env!("CARGO_BIN_EXE_knarr"));
        let removed = self.host.remove_cluster(knarr, &data_dir);
        removed.map_err(|error| format!("{error:#}"))?;
        let _ = self.server.lock().expect("nobody panics while holding it").wait();
        std::fs::remove_dir_all(self.dir.path()).map_err(|error| error.to_string())?;
        let left = remains(self.dir.path(), &self.host);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left behind: {left:?}"))
        }
    }
}

fn start_server(dir: &Path, host: &Host, flags: &[String], through: &[OsString]) -> Child {
    spawn(
        // The agent's files lie elsewhere, so that nothing relies on their usual place; `cargo xtask up` has that.
        server_command(dir, host, PORT, through)
            .args(["--cgroup-root", &host.cgroup_root()])
            .arg("--agent-data-dir")
            .arg(dir.join("elsewhere"))
            .args(flags),
        dir,
    )
}

/// Processes, mounts, namespaces and groups that still name the cluster.
fn remains(dir: &Path, host: &Host) -> Vec<String> {
    let dir = dir.display().to_string();
    let mut left: Vec<String> = processes(|line| String::from_utf8_lossy(line).contains(&dir))
        .into_iter()
        .map(|pid| format!("process {pid}"))
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&dir))
            .map(str::to_owned),
    );
    let groups = std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten();
    let name = host.cgroup_root();
    let name = name.trim_start_matches('/');
    let own = groups
        .map(|entry| entry.path().join(name))
        .chain([PathBuf::from("/sys/fs/cgroup").join(name)]);
    left.extend(
        own.filter(|path| path.exists())
            .map(|path| path.display().to_string()),
    );
    left.extend(
        host.network_namespace()
            .filter(|path| path.exists())
            .map(|path| path.display().to_string()),
    );
    left
}

/// A Service's address and first port as the node reaches it.
pub(crate) fn service_address(kubectl: &Kubectl, name: &str) -> SocketAddr {
    let found = kubectl.field(
        &format!("service/{name}"),
        "{.spec.clusterIP}:{.spec.ports[0].port}",
    );
    found.parse().expect("an address and a port")
}

/// The id of every running container, by pod and name.
pub(crate) fn container_ids(kubectl: &Kubectl) -> BTreeMap<String, String> {
    let path = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].containerID} \
                {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    let listed = kubectl.field("pods", path);
    let pairs = listed.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(pod, ids)| (pod.to_owned(), ids.to_owned())).collect()
}
