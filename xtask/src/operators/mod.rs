//! `cargo xtask operators [NAME…]`: programs that others wrote for Kubernetes, each with a first scenario against our server.
//!
//! `catalog.rs` has a row for each: its Go module, its definitions and the steps of its scenario, whose objects lie in
//! `conformance/operators/NAME`. [`program`] builds it from the module, [`scenario`] carries out the steps. The server runs
//! without a node; two nodes are objects only, so pods are bound and never start.

mod catalog;
mod program;
mod scenario;

use anyhow::{Result, bail};

use crate::config::Config;
use crate::fake_nodes;
use crate::subject::{Controllers, Subject};
use catalog::{CATALOG, Operator};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenarios to run; all when none is named.
    names: Vec<String>,
    /// List the scenarios.
    #[arg(long)]
    list: bool,
    /// Check the release of our server rather than a debug build.
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    if arguments.list {
        for operator in CATALOG {
            println!("{:<24} {} {}", operator.name, operator.module, operator.version);
        }
        return Ok(());
    }
    for operator in choose(&arguments.names)? {
        println!("==> {} {}", operator.name, operator.version);
        check(config, operator, arguments.release)?;
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Operator>> {
    for name in names {
        if !CATALOG.iter().any(|operator| operator.name == name) {
            let known: Vec<_> = CATALOG.iter().map(|operator| operator.name).collect();
            bail!("no scenario {name:?}; there are: {}", known.join(" "));
        }
    }
    let chosen = |operator: &&Operator| names.is_empty() || names.iter().any(|name| name == operator.name);
    Ok(CATALOG.iter().filter(chosen).collect())
}

/// Runs one scenario on a server of its own.
fn check(config: &Config, operator: &Operator, release: bool) -> Result<()> {
    let module = program::ensure(config, operator)?;
    let folder = config.root.join("target/operators").join(operator.name);
    let subject = Subject::start_with(config, &folder, release, Controllers::All)?;
    fake_nodes::create(config, &subject.kubeconfig, &folder)?;
    scenario::run(
        config,
        operator,
        &scenario::Place {
            kubeconfig: &subject.kubeconfig,
            folder: &folder,
            module: &module,
        },
    )
}
