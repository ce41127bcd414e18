//! API servers under load: our whole control plane, our API server alone, and upstream's.

use super::{Arguments, Built, Figure, binary_size, page};
use crate::config::Config;
use crate::process;
use crate::upstream::{self, Upstream};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// The table.
pub(super) fn measure(
    config: &Config,
    arguments: &Arguments,
    built: &Built,
    scratch: &Path,
) -> Result<String> {
    println!("==> Knarr, the whole control plane");
    let mut ours = vec![binary_size(built, scratch)?];
    ours.extend(knarr(arguments, built, scratch, Measured::ControlPlane)?);
    let kwok = config.tools.join("kwok");
    if kwok.is_file() {
        println!("==> Knarr, a large Deployment");
        ours.extend(knarr(arguments, built, scratch, Measured::Rollout(&kwok))?);
    } else {
        println!("SKIPPED, not measured: a large Deployment; build kwok with `cargo xtask tools kwok`");
    }
    println!("==> Knarr, the API server alone");
    ours.extend(knarr(arguments, built, scratch, Measured::Api)?);
    let peer_there = ["etcd", "kube-apiserver"]
        .iter()
        .all(|name| config.tools.join(name).is_file());
    let theirs = if arguments.no_peer {
        Vec::new()
    } else if peer_there {
        println!("==> upstream");
        upstream(config, arguments, built, scratch)?
    } else {
        println!("SKIPPED, not measured: upstream; build it with `cargo xtask tools etcd kube-apiserver`");
        Vec::new()
    };
    Ok(page::beside(&ours, &theirs))
}

/// Purpose of a server of ours.
#[derive(Debug, Clone, Copy)]
enum Measured<'a> {
    /// With controllers and scheduler.
    ControlPlane,
    /// The same, on nodes that this program plays.
    Rollout(&'a Path),
    /// The API server alone, which is what upstream's is compared with.
    Api,
}

fn knarr(
    arguments: &Arguments,
    built: &Built,
    scratch: &Path,
    measured: Measured<'_>,
) -> Result<Vec<Figure>> {
    let (name, flags) = match measured {
        Measured::ControlPlane => (
            "control-plane",
            vec!["--control-plane".to_owned(), "true".to_owned()],
        ),
        Measured::Rollout(kwok) => ("rollout", vec!["--kwok".to_owned(), kwok.display().to_string()]),
        Measured::Api => ("api", Vec::new()),
    };
    let kubeconfig = scratch.join(format!("{name}.kubeconfig"));
    let [port] = upstream::free_ports()?;
    let mut server = vec![
        built.program("knarr").display().to_string(),
        "server".into(),
        format!("--data-dir={}", scratch.join(name).display()),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--write-kubeconfig={}", kubeconfig.display()),
        "--disable-agent".into(),
    ];
    if let Measured::Api = measured {
        server.extend(["--controllers=-*".to_owned(), "--disable-scheduler".to_owned()]);
    }
    load(arguments, built, &kubeconfig, &flags, &server)
}

fn upstream(config: &Config, arguments: &Arguments, built: &Built, scratch: &Path) -> Result<Vec<Figure>> {
    let options = upstream::Options {
        durable: true,
        ..upstream::Options::default()
    };
    let peer = Upstream::start(config, &scratch.join("upstream"), options)?;
    let kubeconfig = scratch.join("upstream.kubeconfig");
    let authority = process::output(
        process::command("base64")
            .arg("-w0")
            .arg(peer.certificate_authority()),
    )?;
    let text = fs::read_to_string(&peer.kubeconfig)?;
    let trusting = format!("certificate-authority-data: {}", authority.trim());
    fs::write(
        &kubeconfig,
        text.replace("insecure-skip-tls-verify: true", &trusting),
    )?;
    let flags: Vec<String> = peer
        .pids()
        .iter()
        .flat_map(|pid| ["--pid".to_owned(), pid.to_string()])
        .collect();
    load(arguments, built, &kubeconfig, &flags, &[])
}

fn load(
    arguments: &Arguments,
    built: &Built,
    kubeconfig: &Path,
    flags: &[String],
    server: &[String],
) -> Result<Vec<Figure>> {
    let mut bench = process::command(built.program("knarr-bench"));
    bench.arg("--kubeconfig").arg(kubeconfig).args(flags);
    bench.args([
        "--pods",
        &arguments.pods.to_string(),
        "--watchers",
        &arguments.watchers.to_string(),
    ]);
    if !server.is_empty() {
        bench.arg("--").args(server);
    }
    serde_json::from_str(&process::output(&mut bench)?).context("reading the figures")
}
