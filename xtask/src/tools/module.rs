//! Folders of published Go modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::config::Config;
use crate::process;

/// The folder of a Go module of the version that `conformance/tools` pins, downloaded if it is not there.
pub(crate) fn module(config: &Config, path: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    let mut download = go(&config.root.join("conformance/tools"));
    download.args(["mod", "download", "-json", path]);
    let module: Module = serde_json::from_str(&process::output(&mut download)?)
        .with_context(|| format!("reading what go says of {path}"))?;
    Ok(module.dir)
}

/// The folder of a Go module of a version of its own, downloaded if it is not there; it is read-only.
pub(super) fn module_at(config: &Config, path: &str, version: &str) -> Result<PathBuf> {
    module(config, &format!("{path}@{version}"))
}

/// Copies a module to where it can be written.
pub(super) fn copy(config: &Config, path: &str, version: &str, to: &Path) -> Result<()> {
    let from = module_at(config, path, version)?;
    if to.try_exists()? {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to.parent().context("a folder below target")?)?;
    process::run(process::command("cp").arg("-r").arg(from).arg(to))?;
    process::run(process::command("chmod").args(["-R", "u+w"]).arg(to))
}

/// go in a folder, for programs without C.
pub(super) fn go(folder: &Path) -> Command {
    let mut go = process::command("go");
    go.env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .current_dir(folder);
    go
}
