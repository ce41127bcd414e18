//! A machine with systemd as its first process: namespaces of this one, over its files, with groups of cgroup v1 of its own.

use super::Host;
use super::kubectl::{PATIENCE, skipped};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const SCRIPT: &str = include_str!("systemd_node.sh");
const SYSTEMD: &str = "/lib/systemd/systemd";
const GROUPS: &str = "/sys/fs/cgroup";
/// Hierarchies of cgroup v1 in which a node has a group, as systemd and containers need them.
const HIERARCHIES: [&str; 9] = [
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd",
];
/// The machine's target: no more than what a node needs of systemd.
const TARGET: &str =
    "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=dbus.service systemd-logind.service\n";

/// It ends, with all that runs in it, when it is dropped.
pub(crate) struct SystemdNode {
    /// The group of the node in every hierarchy.
    pub(crate) group: String,
    /// `unshare`, whose child is systemd.
    outer: Child,
}

/// The first thing that this machine lacks.
fn missing() -> Option<&'static str> {
    let has = |path: &str| Path::new(path).exists();
    if !nix::unistd::geteuid().is_root() {
        Some("this is not root")
    } else if !has(SYSTEMD) || !has("/lib/systemd/systemd-logind") {
        Some("systemd is not installed")
    } else if node_sys::exec::find_program("dbus-daemon").is_none()
        || !has("/lib/systemd/system/dbus.service")
    {
        Some("dbus is not installed")
    } else if !HIERARCHIES
        .iter()
        .all(|name| has(&format!("{GROUPS}/{name}/cgroup.procs")))
    {
        Some("cgroup v1 with a hierarchy name=systemd is not mounted")
    } else {
        None
    }
}

impl SystemdNode {
    /// Starts one in this network, with these units; or `None` after printing what is skipped. Both see the folder, by one path.
    pub(crate) fn start(test: &str, host: &Host, folder: &Path, units: &[(&str, &str)]) -> Option<Self> {
        if let Some(reason) = missing() {
            skipped(test, reason);
            return None;
        }
        write_units(&folder.join("units"), units);
        let group = format!("knarr-{test}-{}", std::process::id());
        make_groups(&group);
        let enter =
            "for name in $1; do echo $$ > /sys/fs/cgroup/$name/$2/cgroup.procs; done; shift 2; exec \"$@\"";
        let mut command = host.command("sh");
        command.args(["-c", enter, "sh", &HIERARCHIES.join(" "), &group]);
        command.args([
            "unshare",
            "--mount",
            "--uts",
            "--cgroup",
            "--pid",
            "--ipc",
            "--fork",
            "--kill-child",
        ]);
        command.args(["--propagation", "private", "sh", "-c", SCRIPT, "sh"]);
        let binaries = Path::new(env!("CARGO_BIN_EXE_knarr")).parent().expect("a folder");
        command.arg(folder).arg(binaries);
        let log = std::fs::File::create(folder.join("node.log")).expect("a log");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        let outer = command.spawn().expect("unshare starts");
        let mut node = Self { group, outer };
        node.wait_running(folder);
        Some(node)
    }

    fn wait_running(&mut self, folder: &Path) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let ended = self.outer.try_wait().expect("its state");
            let log = || {
                let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
                read("node.log") + &read("console")
            };
            assert!(ended.is_none(), "the node has ended: {}", log());
            let state = self.says(&["systemctl", "is-system-running"]);
            if ["running", "degraded"].contains(&state.trim()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("systemd does not run: {}", self.says(&["systemctl", "--failed"]));
    }

    /// systemd, by its number in this machine.
    fn first_process(&self) -> Option<u32> {
        let outer = self.outer.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Words that run a command in the node.
    pub(crate) fn words(&self) -> Vec<String> {
        let process = self.first_process().unwrap_or(0).to_string();
        let mut words = ["nsenter", "--target", &process, "--all", "--", "env", "-i"]
            .map(str::to_owned)
            .to_vec();
        words.push("HOME=/root".to_owned());
        words.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        words
    }

    /// A command in the node.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments);
        command
    }

    /// Output of a command in the node, whether it succeeds or not.
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("nsenter starts");
        super::text(&output.stdout) + &super::text(&output.stderr)
    }

    /// Output of a command in the node that has to succeed.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("nsenter starts");
        let (out, err) = (super::text(&output.stdout), super::text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out
    }

    /// Waits until the machine has gone down.
    #[track_caller]
    pub(crate) fn wait_down(&mut self) {
        let begun = Instant::now();
        while self.outer.try_wait().expect("its state").is_none() {
            assert!(begun.elapsed() < PATIENCE, "the machine has not gone down");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// Folders of a group in all hierarchies of this machine, by its path in the node.
    pub(crate) fn folders(&self, path: &str) -> Vec<PathBuf> {
        let all = HIERARCHIES
            .iter()
            .map(|name| Path::new(GROUPS).join(name).join(&self.group));
        let folders = all.map(|folder| folder.join(path.trim_start_matches('/')));
        folders.filter(|folder| folder.exists()).collect()
    }
}

impl Drop for SystemdNode {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let begun = Instant::now();
        // Processes leave their groups a moment after they have ended.
        while !self.folders("").is_empty() && begun.elapsed() < std::time::Duration::from_secs(10) {
            for folder in self.folders("") {
                remove_groups(&folder);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

fn remove_groups(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

fn write_units(folder: &Path, units: &[(&str, &str)]) {
    let target = ("default.target", TARGET);
    for (name, text) in units.iter().chain([&target]) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of units");
        std::fs::write(path, text).expect("a unit");
    }
}

/// A new group of `cpuset` takes no process until it has processors and memory.
fn make_groups(group: &str) {
    for name in HIERARCHIES {
        let parent = Path::new(GROUPS).join(name);
        let folder = parent.join(group);
        std::fs::create_dir_all(&folder).expect("a group");
        if name == "cpuset" {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                std::fs::copy(parent.join(file), folder.join(file)).expect("its processors");
            }
        }
    }
}
