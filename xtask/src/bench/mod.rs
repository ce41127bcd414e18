//! `cargo xtask bench`: what operations cost on a release build, upstream's server beside ours when it is built, and
//! what a node costs. [`servers`] measures API servers, [`node`] a cluster with containers, [`page`] makes tables.

mod node;
mod page;
mod servers;

use crate::config::Config;
use crate::{packages, process};
use anyhow::Result;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Parts to measure, and sizes of the load.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of pods to create.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Number of watchers.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Only our own server.
    #[arg(long)]
    no_peer: bool,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
    /// Measure a debug build, to work on what is slow; such figures are never written.
    #[arg(long, conflicts_with = "write")]
    dev: bool,
    /// Write the tables to docs/promises.md.
    #[arg(long)]
    write: bool,
}

/// A table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// API servers under load.
    Servers,
    /// A node with containers.
    Node,
}

#[derive(Debug, Deserialize)]
struct Figure {
    work: String,
    figure: String,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let built = build(config, arguments)?;
    let scratch = Scratch::new()?;
    if wanted(Part::Servers) {
        let table = servers::measure(config, arguments, &built, &scratch.0)?;
        write_table(config, arguments, page::SERVERS, &table)?;
    }
    if wanted(Part::Node)
        && let Some(table) = node::measure(&built, &scratch.0)?
    {
        write_table(config, arguments, page::NODE, &table)?;
    }
    Ok(())
}

fn write_table(
    config: &Config,
    arguments: &Arguments,
    markers: page::TableMarkers,
    table: &str,
) -> Result<()> {
    print!("{table}");
    match arguments.write {
        true => page::write(config, markers, table),
        false => Ok(()),
    }
}

/// Folder of the built programs.
struct Built(PathBuf);

fn build(config: &Config, arguments: &Arguments) -> Result<Built> {
    packages::ensure(packages::BUILD)?;
    let (profile, folder) = match arguments.dev {
        true => ("dev", "debug"),
        false => ("release", "release"),
    };
    println!("==> building ({profile})");
    let mut build = process::cargo(&config.root);
    // The whole workspace's features and no example, whose package would bring those of its tests: `up` has built the same.
    build.args(["build", "--profile", profile, "--workspace"]);
    for program in ["knarr", "knarr-bench", "start_pods"] {
        build.args(["--bin", program]);
    }
    process::run(&mut build)?;
    Ok(Built(config.root.join("target").join(folder)))
}

impl Built {
    fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
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
fn binary_size(built: &Built, scratch: &Path) -> Result<Figure> {
    let stripped = scratch.join("knarr.stripped");
    let mut strip = process::command("strip");
    strip.arg("-o").arg(&stripped).arg(built.program("knarr"));
    process::run(&mut strip)?;
    let bytes = fs::metadata(&stripped)?.len();
    Ok(Figure {
        work: "binary, stripped".into(),
        figure: format!("{:.1} MB", bytes as f64 / 1e6),
    })
}
