//! `cargo xtask up`: installs what is missing, builds the binary, and calls `knarr up`.

use crate::config::Config;
use crate::host::Host;
use crate::{packages, process};
use anyhow::Result;
use std::path::PathBuf;

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
