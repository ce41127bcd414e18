//! Programs of operators, built from their published Go modules.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::catalog::Operator;
use crate::config::Config;
use crate::process;

/// Path of an operator's program.
pub(crate) fn path(config: &Config, operator: &Operator) -> PathBuf {
    config
        .tools
        .join(format!("{}-{}", operator.name, operator.version))
}

/// Builds the program unless it is there, and returns the folder of its module.
pub(crate) fn ensure(config: &Config, operator: &Operator) -> Result<PathBuf> {
    let published = download(config, operator)?;
    let program = path(config, operator);
    if program.try_exists()? {
        return Ok(published);
    }
    println!("building {} (once) …", operator.name);
    fs::create_dir_all(&config.tools)?;
    let source = config.root.join("target/operators/src").join(operator.name);
    copy(&published, &source)?;
    // Folders that a module replaces parts of itself with are no part of what is published.
    for replaced in operator.replaced {
        let flag = format!("-dropreplace={replaced}");
        process::run(go(&source).args(["mod", "edit", &flag]))?;
    }
    let fresh = program.with_extension("new");
    process::run(
        go(&source)
            .args(["build", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
            .arg(&fresh)
            .arg(operator.package),
    )?;
    fs::rename(fresh, program)?;
    Ok(published)
}

fn go(folder: &Path) -> std::process::Command {
    let mut go = process::command("go");
    go.env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .current_dir(folder);
    go
}

/// Downloads the module, and returns its folder, which is read-only.
fn download(config: &Config, operator: &Operator) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    let module = format!("{}@{}", operator.module, operator.version);
    let mut download = go(&config.root.join("conformance/tools"));
    download.args(["mod", "download", "-json", &module]);
    let module: Module = serde_json::from_str(&process::output(&mut download)?)
        .with_context(|| format!("reading what go says of {module}"))?;
    Ok(module.dir)
}

/// Copies a module to where it can be written.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.try_exists()? {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to.parent().context("a folder below target")?)?;
    process::run(process::command("cp").arg("-r").arg(from).arg(to))?;
    process::run(process::command("chmod").args(["-R", "u+w"]).arg(to))
}
