//! `cargo xtask bench`: what operations cost on a release build, upstream's server beside ours when it is built.

use crate::config::Config;
use crate::upstream::{self, Upstream};
use crate::{packages, process};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many pods to load.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many watchers to fan out to.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Only our own server.
    #[arg(long)]
    no_peer: bool,
    /// Write the table to docs/performance.md.
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Deserialize)]
struct Figure {
    work: String,
    figure: String,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    packages::ensure(packages::BUILD)?;
    println!("==> building a release");
    let build = [
        "build",
        "--release",
        "--package",
        "knarr",
        "--package",
        "conformance",
        "--bin",
        "knarr",
        "--bin",
        "knarr-bench",
    ];
    process::run(process::command("cargo").current_dir(&config.root).args(build))?;
    let scratch = Scratch::new()?;
    println!("==> Knarr, the whole control plane");
    let mut ours = vec![binary_size(config, &scratch.0)?];
    ours.extend(knarr(config, arguments, &scratch.0, true)?);
    println!("==> Knarr, the API server alone");
    ours.extend(knarr(config, arguments, &scratch.0, false)?);
    let peer_there = ["etcd", "kube-apiserver"]
        .iter()
        .all(|name| config.tools.join(name).is_file());
    let theirs = if arguments.no_peer {
        Vec::new()
    } else if peer_there {
        println!("==> upstream");
        upstream(config, arguments, &scratch.0)?
    } else {
        println!("SKIPPED, not measured: upstream; build it with `cargo xtask tools etcd kube-apiserver`");
        Vec::new()
    };
    let table = table(&ours, &theirs);
    print!("{table}");
    if arguments.write {
        write_page(config, &table)?;
    }
    Ok(())
}

/// A directory that goes with the run.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = process::output(process::command("mktemp").args(["-d", "-t", "knarr-bench.XXXXXX"]))?;
        Ok(Self(PathBuf::from(path.trim())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Stripped again, since a build for a profiler keeps its symbols.
fn binary_size(config: &Config, scratch: &Path) -> Result<Figure> {
    let stripped = scratch.join("knarr.stripped");
    let mut strip = process::command("strip");
    strip
        .arg("-o")
        .arg(&stripped)
        .arg(config.root.join("target/release/knarr"));
    process::run(&mut strip)?;
    let bytes = fs::metadata(&stripped)?.len();
    Ok(Figure {
        work: "binary, stripped".into(),
        figure: format!("{:.1} MB", bytes as f64 / 1e6),
    })
}

/// With controllers and scheduler, or the API server alone, which is what upstream's is compared with.
fn knarr(config: &Config, arguments: &Arguments, scratch: &Path, control_plane: bool) -> Result<Vec<Figure>> {
    let name = if control_plane { "control-plane" } else { "api" };
    let kubeconfig = scratch.join(format!("{name}.kubeconfig"));
    let [port] = upstream::free_ports()?;
    let mut server = vec![
        config.root.join("target/release/knarr").display().to_string(),
        "server".into(),
        format!("--data-dir={}", scratch.join(name).display()),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--write-kubeconfig={}", kubeconfig.display()),
        "--disable-agent".into(),
    ];
    if control_plane {
        let flags = ["--control-plane".to_owned(), "true".to_owned()];
        return measure(config, arguments, &kubeconfig, &flags, &server);
    }
    server.extend(["--controllers=-*".to_owned(), "--disable-scheduler".to_owned()]);
    measure(config, arguments, &kubeconfig, &[], &server)
}

fn upstream(config: &Config, arguments: &Arguments, scratch: &Path) -> Result<Vec<Figure>> {
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
    measure(config, arguments, &kubeconfig, &flags, &[])
}

fn measure(
    config: &Config,
    arguments: &Arguments,
    kubeconfig: &Path,
    flags: &[String],
    server: &[String],
) -> Result<Vec<Figure>> {
    let mut bench = process::command(config.root.join("target/release/knarr-bench"));
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

fn table(ours: &[Figure], theirs: &[Figure]) -> String {
    let mut out = String::from("| work | Knarr | upstream, same run |\n|---|---|---|\n");
    for figure in ours {
        let peer = theirs
            .iter()
            .find(|other| other.work == figure.work)
            .map_or("–", |other| &other.figure);
        out.push_str(&format!("| {} | {} | {peer} |\n", figure.work, figure.figure));
    }
    out
}

const BEGIN: &str = "<!-- cargo xtask bench --write -->\n";
const END: &str = "<!-- end -->\n";

fn write_page(config: &Config, table: &str) -> Result<()> {
    let path = config.root.join("docs/performance.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page
        .split_once(BEGIN)
        .context("docs/performance.md has lost its marker")?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/performance.md has lost its end marker")?;
    Ok(fs::write(path, format!("{before}{BEGIN}{table}{END}{after}"))?)
}
