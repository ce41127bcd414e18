//! `cargo xtask operators [NAME…]`: programs that others wrote for Kubernetes, each with a first scenario against our server.
//!
//! `catalog` has a file for each: its definitions, its program and the steps of its scenario, whose objects lie in
//! `conformance/operators/NAME`. [`tools`] builds it from its published Go module, [`pod`] starts it, [`scenario`] carries
//! out the steps. The server runs without a node; two nodes are objects only, so pods are bound and never start. Operators run
//! outside of the cluster, and their webhooks are called at an address of this machine.

mod catalog;
mod patience;
mod place;
mod pod;
mod scenario;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::config::Config;
use crate::subject::{Controllers, Subject};
use crate::{fake_nodes, tools};
use catalog::{CATALOG, Operator};
use place::Place;

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
            let (module, version) = tools::version(operator.name).unwrap_or_default();
            println!("{:<24} {module} {version}", operator.name);
        }
        return Ok(());
    }
    let mut failed = Vec::new();
    for operator in choose(&arguments.names)? {
        println!("==> {}", operator.name);
        if let Err(error) = check(config, operator, arguments.release) {
            println!("{}: {error:#}", operator.name);
            failed.push(operator.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}; logs are in target/operators", failed.join(" "));
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
    tools::ensure(config, &[operator.name])?;
    let module = match operator.definitions {
        [] => PathBuf::new(),
        _ => tools::source(config, operator.name)?,
    };
    let folder = config.root.join("target/operators").join(operator.name);
    let subject = Subject::start_as_built(config, &folder, release, Controllers::All)?;
    fake_nodes::create(config, &subject.kubeconfig, &folder)?;
    let place = Place::new(config, operator, module, &folder, &subject.kubeconfig)?;
    scenario::run(operator, &place)
}

#[cfg(test)]
mod tests {
    use super::catalog::Step;
    use super::*;

    #[test]
    fn operators_have_a_tool_and_the_files_of_their_scenarios() {
        let config = Config::read().unwrap();
        for operator in CATALOG {
            assert!(tools::version(operator.name).is_some(), "{}", operator.name);
            let mut files: Vec<_> = operator
                .program
                .iter()
                .flat_map(|program| program.files)
                .collect();
            for step in operator.steps {
                match step {
                    Step::Apply(file) | Step::Refused { file, .. } => files.push(file),
                    _ => {}
                }
            }
            let folder = config.root.join("conformance/operators").join(operator.name);
            for file in files {
                assert!(
                    folder.join(file).try_exists().unwrap(),
                    "{} of {}",
                    file,
                    operator.name
                );
            }
        }
    }
}
