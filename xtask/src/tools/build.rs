//! Building of one program, and the pin that says from what it was built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::module::{copy, go};
use super::table::{Copied, KUBERNETES_VERSION, Recipe, Tool};
use crate::config::Config;
use crate::process;

/// True if the program is there and its pin still fits.
pub(super) fn is_built(config: &Config, tool: &Tool) -> Result<bool> {
    let program = config.tools.join(tool.name);
    if !program.try_exists()? {
        return Ok(false);
    }
    let pin = fs::read_to_string(pin_path(&program)).unwrap_or_default();
    Ok(pin == expected_pin(config, tool)?)
}

/// Builds the program into its place.
pub(super) fn build(config: &Config, tool: &Tool) -> Result<()> {
    fs::create_dir_all(&config.tools)?;
    let program = config.tools.join(tool.name);
    let fresh = config.tools.join(format!(".{}.new", tool.name));
    let mut go = command(config, tool, &fresh)?;
    process::run(&mut go).with_context(|| format!("building {}", tool.name))?;
    if let Recipe::Install { .. } = tool.recipe {
        fs::rename(config.tools.join(".install").join(tool.name), &fresh)?;
    }
    fs::rename(&fresh, &program)?;
    fs::write(pin_path(&program), expected_pin(config, tool)?)?;
    Ok(())
}

/// The command that builds a tool as `fresh`; one by `go install` goes to a folder beside the programs.
fn command(config: &Config, tool: &Tool, fresh: &Path) -> Result<Command> {
    let ours = config.root.join("conformance/tools");
    let compile = |folder: &Path, words: &[&str], flags: &str, package: &str| {
        let mut go = go(folder);
        go.args(words)
            .args(["-ldflags", flags, "-o"])
            .arg(fresh)
            .arg(package);
        go
    };
    Ok(match tool.recipe {
        Recipe::Build(package) => compile(&ours, &["build"], &linker_flags(), package),
        Recipe::Test(package) => compile(&ours, &["test", "-c"], &linker_flags(), package),
        Recipe::Copy(copied) => {
            let folder = prepare(config, tool.name, &copied)?;
            compile(&folder, &["build"], "-s -w", copied.package)
        }
        Recipe::Install { package, version } => {
            let mut go = go(&ours);
            go.env("GOBIN", config.tools.join(".install"))
                .args(["install", "-ldflags", "-s -w"])
                .arg(format!("{package}@{version}"));
            go
        }
    })
}

/// Copies the module to where it can be written, and makes it complete.
fn prepare(config: &Config, name: &str, copied: &Copied) -> Result<PathBuf> {
    let folder = config.root.join("target/operators/src").join(name);
    copy(config, copied.module, copied.version, &folder)?;
    for replaced in copied.replaced {
        let flag = format!("-dropreplace={replaced}");
        process::run(go(&folder).args(["mod", "edit", &flag]))?;
    }
    if let Some(added) = copied.added {
        let package = folder.join(copied.package);
        fs::create_dir_all(&package)?;
        for source in sources(&config.root.join(added))? {
            fs::copy(&source, package.join(source.file_name().context("a file")?))?;
        }
    }
    Ok(folder)
}

/// Flags without which clients see a version skew and the server says v0.0.0.
fn linker_flags() -> String {
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor=1 -X {package}.gitMinor=37 -X {package}.gitTreeState=clean"
    )
}

fn pin_path(program: &Path) -> PathBuf {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    program.with_file_name(format!(".{name}.pin"))
}

/// Pin of a program: the module's versions for most, and the source too where it is ours.
pub(super) fn expected_pin(config: &Config, tool: &Tool) -> Result<String> {
    let module = config.root.join("conformance/tools");
    let mut pin = format!("{:?}\n", tool.recipe);
    match tool.recipe {
        Recipe::Install { .. } => return Ok(pin),
        Recipe::Copy(copied) => {
            if let Some(added) = copied.added {
                pin.push_str(&text(&config.root.join(added))?);
            }
            return Ok(pin);
        }
        Recipe::Build(_) | Recipe::Test(_) => pin.push_str(&linker_flags()),
    }
    let go_mod = fs::read_to_string(module.join("go.mod")).context("reading go.mod")?;
    let direct = go_mod.lines().filter(|line| !line.contains("// indirect"));
    pin.extend(direct.map(|line| format!("\n{line}")));
    if let Recipe::Build(package) = tool.recipe
        && let Some(folder) = package.strip_prefix("./")
    {
        pin.push_str(&text(&module.join(folder))?);
    }
    Ok(pin)
}

/// Text of a folder's sources, one after the other.
fn text(folder: &Path) -> Result<String> {
    let texts: Result<Vec<_>, _> = sources(folder)?.iter().map(fs::read_to_string).collect();
    Ok(texts?.concat())
}

/// Files of a folder, by name.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut sources: Vec<_> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    sources.sort();
    Ok(sources)
}
