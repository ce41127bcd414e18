//! `cargo xtask tools [NAME…]`: upstream's programs and those of operators, built from their published Go modules.
//!
//! [`table`] lists them, [`build`] builds one, [`module`] has the folders of modules. `conformance/tools/go.mod` pins the
//! versions of what is built beside Kubernetes; a row of the table pins the others. Programs go to [`Config::tools`], each with a small
//! `.pin` file beside it that says from what; a program whose pin still fits is not built again.
//! A program is put in its place by rename, so a process that runs the old one is not disturbed.

mod build;
mod module;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::config::Config;
use build::{build, expected_pin, is_built};
pub(crate) use module::module;
use table::{Recipe, TOOLS, Tool};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Tools to build; all of the defaults when none is named.
    names: Vec<String>,
    /// List what can be built and what is there already.
    #[arg(long)]
    list: bool,
    /// Build even what is there.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    if arguments.list {
        return list(config);
    }
    let chosen = choose(&arguments.names)?;
    for (index, tool) in chosen.iter().enumerate() {
        let position = format!("[{}/{}]", index + 1, chosen.len());
        if !arguments.force && is_built(config, tool)? {
            println!("{position} {} is there", tool.name);
            continue;
        }
        println!("{position} building {} …", tool.name);
        build(config, tool)?;
    }
    println!("in {}", config.tools.display());
    Ok(())
}

/// Builds what is missing of `names`; other commands call this before they start something.
pub(crate) fn ensure(config: &Config, names: &[&str]) -> Result<()> {
    for tool in TOOLS.iter().filter(|tool| names.contains(&tool.name)) {
        if !is_built(config, tool)? {
            println!("building {} (once) …", tool.name);
            build(config, tool)?;
        }
    }
    Ok(())
}

/// Pins of programs that are built, one below the other: what is made of them is out of date when these have changed.
pub(crate) fn pins(config: &Config, names: &[&str]) -> Result<String> {
    TOOLS
        .iter()
        .filter(|tool| names.contains(&tool.name))
        .map(|tool| expected_pin(config, tool))
        .collect()
}

/// Folder of the published module that a tool is built from, downloaded if it is not there; it is read-only.
///
/// # Errors
/// There is no such tool, it is not built from a module of its own, or the module is not to be had.
pub(crate) fn source(config: &Config, name: &str) -> Result<PathBuf> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    match tool.with_context(|| format!("no tool {name:?}"))?.recipe {
        Recipe::Copy(copied) => module::module_at(config, copied.module, copied.version),
        _ => bail!("{name} is not built from a module of its own"),
    }
}

/// Module and version of a tool that is built from a module of its own; nothing of others.
pub(crate) fn version(name: &str) -> Option<(&'static str, &'static str)> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    match tool.recipe {
        Recipe::Copy(copied) => Some((copied.module, copied.version)),
        _ => None,
    }
}

fn choose(names: &[String]) -> Result<Vec<&'static Tool>> {
    for name in names {
        if !TOOLS.iter().any(|tool| tool.name == name) {
            let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
            bail!("no tool {name:?}; there are: {}", known.join(" "));
        }
    }
    let chosen = |tool: &&Tool| match names {
        [] => tool.default,
        _ => names.iter().any(|name| name == tool.name),
    };
    Ok(TOOLS.iter().filter(chosen).collect())
}

fn list(config: &Config) -> Result<()> {
    for tool in TOOLS {
        let state = match (is_built(config, tool)?, tool.default) {
            (true, _) => "built",
            (false, true) => "missing",
            (false, false) => "on request",
        };
        println!("{:<24} {state}", tool.name);
    }
    Ok(())
}
