//! `cargo xtask up`: installs what is missing, builds the binary, and calls `knarr up`. Further nodes join the first one.

use crate::config::Config;
use crate::host::Host;
use crate::{packages, process, tools};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use xtask::nodes::{self, FurtherNode};

/// Nodes of a cluster on one machine.
pub(crate) const NODES_MAX: u8 = 8;

/// Looks at whether a further node is Ready: 600 × 200 ms.
const ATTEMPTS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(200);

/// Folders of the cluster, and the place where it runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Everything the cluster keeps.
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// The port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Run in a network namespace of this name, made if missing, instead of the machine's own network.
    #[arg(long, value_name = "NAME")]
    pub isolated: Option<String>,
    /// Number of nodes; each one but the first has a network namespace of its own beside the first one's.
    #[arg(long, default_value_t = 1, requires = "isolated", value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u8,
    /// Use a debug build, which is there sooner and runs slower.
    #[arg(long)]
    pub dev: bool,
    /// Run this binary instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with = "dev")]
    pub binary: Option<PathBuf>,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    packages::ensure(packages::NODE)?;
    let knarr = binary(config, arguments)?;
    let host = Host::prepare(arguments.isolated.clone())?;
    let mut up = host.command(&knarr);
    up.arg("up").arg("--data-dir").arg(&arguments.data_dir);
    up.args(["--secure-port", &arguments.secure_port.to_string()]);
    up.args(["--", "--cgroup-root", &host.cgroup_root()]);
    process::run(&mut up)?;
    for number in 2..=arguments.nodes {
        join(config, arguments, &host, &knarr, number)?;
    }
    if let Some(name) = &arguments.isolated {
        println!(
            "\nIts network is a namespace: begin kubectl with `{}`,",
            host.prefix().trim_end()
        );
        println!(
            "and remove all of it with `cargo xtask down --data-dir {} --isolated {name}`.",
            arguments.data_dir.display()
        );
    }
    println!("\nkubectl of the right version: cargo xtask tools kubectl");
    Ok(())
}

/// Starts the agent of a further node with a token, unless it runs, and waits until the node is Ready.
fn join(config: &Config, arguments: &Arguments, first: &Host, knarr: &Path, number: u8) -> Result<()> {
    tools::ensure(config, &["kubectl"])?;
    let name = format!("node-{number}");
    let data_dir = further_data_dir(&arguments.data_dir, number);
    println!(
        "==> starting {name} (its log is {}/agent.log)",
        data_dir.display()
    );
    let node = FurtherNode::beside(first, number, &name, &data_dir, arguments.secure_port)?;
    let token = process::output(process::command("mktemp").args(["-t", "knarr-token.XXXXXX"]))?;
    let token = Path::new(token.trim());
    nodes::write_token(first, knarr, &arguments.data_dir, token)?;
    // One that runs keeps its place, and the new one ends.
    let started = node.start(knarr, token, &[""; 0]);
    let ready = started.and_then(|_| wait_ready(config, arguments, first, &name));
    std::fs::remove_file(token)?;
    ready
}

fn wait_ready(config: &Config, arguments: &Arguments, first: &Host, name: &str) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let mut kubectl = first.command(config.tools.join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(arguments.data_dir.join("admin.kubeconfig"))
            .args([
                "wait",
                "--for=condition=Ready",
                &format!("node/{name}"),
                "--timeout=1s",
            ]);
        if kubectl
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?
            .success()
        {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    bail!("{name} does not get ready")
}

/// Data directory of a further node's agent: beside the cluster's.
pub(crate) fn further_data_dir(data_dir: &Path, number: u8) -> PathBuf {
    let mut name = OsString::from(data_dir.as_os_str());
    name.push(format!("-{number}"));
    PathBuf::from(name)
}

/// The binary that is given, or one built now.
pub(crate) fn binary(config: &Config, arguments: &Arguments) -> Result<PathBuf> {
    match &arguments.binary {
        Some(binary) => Ok(binary.clone()),
        None => build(config, arguments.dev),
    }
}

fn build(config: &Config, dev: bool) -> Result<PathBuf> {
    let (profile, folder) = if dev {
        ("dev", "debug")
    } else {
        ("release", "release")
    };
    packages::ensure(packages::BUILD)?;
    println!("==> building the binary ({profile})");
    let mut build = process::cargo(&config.root);
    process::run(build.args(["build", "--profile", profile, "--package", "knarr"]))?;
    Ok(config.root.join("target").join(folder).join("knarr"))
}
