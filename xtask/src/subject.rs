//! Our own server as the subject of a check: started from this tree's binary with an empty data directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use crate::config::Config;
use crate::{process, tools, upstream};

/// A running `knarr server`, stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Subject {
    pub kubeconfig: PathBuf,
    child: Child,
}

/// Components besides the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controllers {
    None,
    All,
}

impl Subject {
    /// The API alone: nothing else changes objects behind a case's back.
    pub(crate) fn start(config: &Config, folder: &Path, release: bool) -> Result<Self> {
        Self::start_with(config, folder, release, Controllers::None)
    }

    pub(crate) fn start_with(
        config: &Config,
        folder: &Path,
        release: bool,
        controllers: Controllers,
    ) -> Result<Self> {
        let knarr = build(config, release)?;
        Self::start_program(config, folder, &knarr, controllers)
    }

    /// The program that is there, whatever the tree says by now; it is built where there is none.
    pub(crate) fn start_as_built(
        config: &Config,
        folder: &Path,
        release: bool,
        controllers: Controllers,
    ) -> Result<Self> {
        let built = path(config, release);
        let knarr = if built.try_exists()? {
            built
        } else {
            build(config, release)?
        };
        Self::start_program(config, folder, &knarr, controllers)
    }

    fn start_program(config: &Config, folder: &Path, knarr: &Path, controllers: Controllers) -> Result<Self> {
        tools::ensure(config, &["kubectl"])?;
        if folder.try_exists()? {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let kubeconfig = folder.join("kubeconfig");
        let [port] = upstream::free_ports()?;
        let log = fs::File::create(folder.join("knarr.log"))?;
        let mut command = process::command(knarr);
        command
            .args(["server", "--disable-agent", "--bind-address", "127.0.0.1"])
            // Both runners compare with a server that enforces them.
            .arg("--allow-unenforced")
            // Off by default upstream.
            .arg("--disable-admission-plugins=DenyServiceExternalIPs")
            .args(["--secure-port", &port.to_string()])
            .arg("--data-dir")
            .arg(folder.join("data"))
            .arg("--write-kubeconfig")
            .arg(&kubeconfig);
        command.arg(match controllers {
            // Upstream's spelling of "none of them".
            Controllers::None => "--controllers=-*",
            // Fake nodes send no leases and must stay Ready.
            Controllers::All => "--controllers=*,-node-lifecycle-controller",
        });
        if controllers == Controllers::None {
            command.arg("--disable-scheduler");
        }
        println!("starting {} server …", knarr.display());
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting knarr server")?;
        let subject = Self { kubeconfig, child };
        upstream::wait_ready(config, &subject.kubeconfig)
            .with_context(|| format!("see {}/knarr.log", folder.display()))?;
        Ok(subject)
    }
}

/// Builds the program, and returns it.
pub(crate) fn build(config: &Config, release: bool) -> Result<PathBuf> {
    println!("building knarr …");
    let mut build = process::cargo(&config.root);
    // The whole workspace's features, so that what tests have built is used again.
    build.args(["build", "--quiet", "--workspace", "--bin", "knarr"]);
    if release {
        build.arg("--release");
    }
    process::run(&mut build)?;
    Ok(path(config, release))
}

fn path(config: &Config, release: bool) -> PathBuf {
    let profile = if release { "release" } else { "debug" };
    config.root.join("target").join(profile).join("knarr")
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
