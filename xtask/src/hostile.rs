//! `cargo xtask hostile`: two tenants at work on a server, and its node where this machine can have one, while others attack.
//!
//! The tables go to stdout; it fails when the tenants saw more errors than allowed, when memory does not come back, or when
//! the server ended. `docs/security.md` says what the attacks are.

use crate::config::Config;
use crate::{packages, process, upstream};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use xtask::host::Host;

/// The server's port, in a network namespace of its own where there is a node.
const PORT: u16 = 6443;

/// The disk of pods and images.
const DISK: &str = "size=768m,mode=0700";

/// Duration and selection of the attacks.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Minutes of attacks; the tenants are alone for a tenth of that before and after.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Seconds of attacks, instead of minutes.
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// The server's program; without, the release is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The attackers' and tenants' program; without, it is built.
    #[arg(long, value_name = "FILE", requires = "binary")]
    attackers: Option<PathBuf>,
    /// Only the API, also where a node could be had.
    #[arg(long)]
    no_node: bool,
    /// Only attacks whose name has this word; may be given several times.
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// The part of the tenants' requests that may fail under attack, in percent.
    #[arg(long, default_value_t = 0.1)]
    max_errors_percent: f64,
    /// Niceness of the attackers; without it they take the server's processor time.
    #[arg(long, default_value_t = 5)]
    nice: u8,
    /// Memory afterwards is at most so many times that before.
    #[arg(long, default_value_t = 2.0)]
    max_memory_factor: f64,
}

impl Arguments {
    /// Duration in seconds.
    fn duration(&self) -> u64 {
        self.seconds.unwrap_or(self.minutes * 60)
    }
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let (knarr, attacker) = programs(config, arguments)?;
    let without_node = match arguments.no_node {
        true => Some("--no-node is given"),
        false => missing_prerequisite()?,
    };
    if let Some(reason) = without_node {
        println!("==> without a node: {reason}");
    }
    let cluster = TestCluster::new(without_node.is_none(), knarr)?;
    println!("==> {} seconds of attacks", arguments.duration());
    let outcome = process::run(&mut cluster.command(&attacker, arguments)?);
    if outcome.is_err() {
        cluster.keep_logs(&config.root.join("target/hostile"))?;
    }
    outcome
}

/// The server's program and the attackers'.
fn programs(config: &Config, arguments: &Arguments) -> Result<(PathBuf, PathBuf)> {
    if let (Some(knarr), Some(attackers)) = (&arguments.binary, &arguments.attackers) {
        return Ok((knarr.clone(), attackers.clone()));
    }
    packages::ensure(packages::BUILD)?;
    println!("==> building");
    let mut build = process::cargo(&config.root);
    build.args(["build", "--workspace", "--bin", "knarr-hostile", "--profile"]);
    let folder = match &arguments.binary {
        Some(_) => "debug",
        None => "release",
    };
    match &arguments.binary {
        Some(_) => build.arg("dev"),
        None => build.args(["release", "--bin", "knarr"]),
    };
    process::run(&mut build)?;
    let folder = config.root.join("target").join(folder);
    let knarr = arguments.binary.clone().unwrap_or_else(|| folder.join("knarr"));
    Ok((knarr, folder.join("knarr-hostile")))
}

fn missing_prerequisite() -> Result<Option<&'static str>> {
    let missing = ["containerd", "runc", "nft", "ip", "busybox"]
        .iter()
        .any(|name| packages::find_program(name).is_none());
    Ok(match (packages::is_root()?, missing) {
        (false, _) => Some("this is not root"),
        (true, true) => Some("containerd, runc, nftables, iproute2 or busybox is not installed"),
        (true, false) => None,
    })
}

/// Files and namespace of the cluster under attack; removed when dropped.
struct TestCluster {
    scratch: PathBuf,
    /// With a node, a network namespace of its own.
    host: Option<Host>,
    knarr: PathBuf,
}

impl TestCluster {
    fn new(with_node: bool, knarr: PathBuf) -> Result<Self> {
        let path = process::output(process::command("mktemp").args(["-d", "-t", "knarr-hostile.XXXXXX"]))?;
        let name = format!("knarr-hostile-{}", std::process::id());
        let host = with_node.then(|| Host::prepare(Some(name))).transpose()?;
        let cluster = Self {
            scratch: PathBuf::from(path.trim()),
            host,
            knarr,
        };
        if cluster.host.is_some() {
            cluster.mount_disk()?;
        }
        Ok(cluster)
    }

    /// The disk of pods and images, small enough to be filled by a pod; what the server stores has another one.
    fn disk(&self) -> PathBuf {
        self.data_dir().join("agent")
    }

    fn mount_disk(&self) -> Result<()> {
        std::fs::create_dir_all(self.disk())?;
        let mut mount = process::command("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "none"]).arg(self.disk());
        process::run(&mut mount).context("mounting the pods' disk")
    }

    /// Copies the logs of what failed, and what runs and how full the disk is.
    fn keep_logs(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for log in [
            "server.log",
            "agent.log",
            "agent/agent.log",
            "agent/containerd/containerd.log",
        ] {
            let name = log.replace('/', "-");
            // One that is absent was not written.
            let _ = std::fs::copy(self.data_dir().join(log), folder.join(name));
        }
        let mut state = process::output(process::command("ps").args(["-eo", "pid,stat,etimes,args"]))?;
        state.push_str(&process::output(process::command("df").arg(self.disk()))?);
        std::fs::write(folder.join("state"), state).context("writing the state")?;
        println!("==> logs are in {}", folder.display());
        Ok(())
    }

    fn data_dir(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn command(&self, attacker: &Path, arguments: &Arguments) -> Result<std::process::Command> {
        let kubeconfig = self.scratch.join("kubeconfig");
        let mut command = match &self.host {
            Some(host) => host.command(attacker),
            None => process::command(attacker),
        };
        command.arg("--kubeconfig").arg(&kubeconfig);
        command.arg("--data-dir").arg(self.data_dir());
        command.args(["--seconds", &arguments.duration().to_string()]);
        for word in &arguments.only {
            command.args(["--only", word]);
        }
        command.args(["--max-errors-percent", &arguments.max_errors_percent.to_string()]);
        command.args(["--max-memory-factor", &arguments.max_memory_factor.to_string()]);
        command.args(["--nice", &arguments.nice.to_string()]);
        if self.host.is_some() {
            command.arg("--node");
        }
        command.arg("--").arg(&self.knarr).arg("server");
        command.arg("--data-dir").arg(self.data_dir());
        command.arg("--write-kubeconfig").arg(&kubeconfig);
        match &self.host {
            Some(host) => command.args([
                "--secure-port",
                &PORT.to_string(),
                "--cgroup-root",
                &host.cgroup_root(),
                // A node whose disk was full takes pods again before the hour is over.
                "--eviction-pressure-transition-period=10s",
            ]),
            None => {
                let [port] = upstream::free_ports()?;
                command.args(["--disable-agent", "--bind-address", "127.0.0.1"]);
                command.args(["--secure-port", &port.to_string()])
            }
        };
        Ok(command)
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            if let Err(error) = host.remove_cluster(&self.knarr, &self.data_dir()) {
                println!("taking the cluster down: {error:#}");
            }
            // What is not taken down holds it.
            let _ = process::run(process::command("umount").arg("--lazy").arg(self.disk()));
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
