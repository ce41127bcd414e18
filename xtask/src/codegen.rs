//! `cargo xtask codegen [--check]`: the facts about the built-in kinds, from upstream's code and server.
//!
//! A fresh kube-apiserver with default flags is started, and `conformance/tools/facts` writes down what it and
//! upstream's types say, into `machinery/api/facts` (described there in `README.md`), the headers of its Tables and the
//! operations and schemas of its OpenAPI documents. Then the table and the descriptions that are built into the binary are compiled from the facts: `machinery/api/src/{table,descriptions}.bin`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::upstream::{self, Upstream};
use crate::{process, tools};

/// File of the headers of Tables.
const HEADERS: &str = "apiserver/registry/src/shared/columns/headers.tsv";
/// Variables by which a caller unifies the features of all packages (cargo's `resolver.feature-unification`).
const FEATURES: [&str; 2] = [
    "CARGO_RESOLVER_FEATURE_UNIFICATION",
    "CARGO_UNSTABLE_FEATURE_UNIFICATION",
];
/// Folder of what upstream publishes, for comparisons.
const PUBLISHED: &str = "machinery/api/src/openapi/testdata";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Compare with what is checked in, and change nothing.
    #[arg(long)]
    pub check: bool,
    /// Leave the facts as they are and only compile the table from them; needs none of upstream's tools.
    #[arg(long)]
    pub table_only: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let mut differing = 0;
    if !arguments.table_only {
        differing += update_facts(config, arguments.check)?;
    }
    differing += update_table(config, arguments)?;
    match (differing, arguments.check) {
        (0, _) => println!("facts and table are up to date"),
        (_, false) => println!("{differing} files written"),
        (_, true) => bail!("{differing} files are not what they are made from; run cargo xtask codegen"),
    }
    Ok(())
}

/// Returns how many files differ, or differed until they were written.
fn update_facts(config: &Config, check: bool) -> Result<usize> {
    let checked_in = config.root.join("machinery/api/facts");
    let work = config.root.join("target/codegen");
    let fresh = work.join("facts");
    read_facts(config, &work, &fresh)?;
    let differing = differing_files(&fresh, &checked_in)?;
    for name in &differing {
        println!("differs: {}", name.display());
        let (from, to) = (fresh.join(name), checked_in.join(name));
        if check {
            continue;
        }
        if from.try_exists()? {
            fs::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs::copy(from, to)?;
        } else {
            fs::remove_file(to)?;
        }
    }
    let mut count = differing.len();
    count += update_file(&fresh.join("headers.tsv"), &config.root.join(HEADERS), check)?;
    for name in ["operations.tsv", "schemas.tsv"] {
        let checked_in = config.root.join(PUBLISHED).join(name);
        count += update_file(&fresh.join(name), &checked_in, check)?;
    }
    Ok(count)
}

/// Returns 1 if the file differs, or differed until it was written.
fn update_file(fresh: &Path, checked_in: &Path, check: bool) -> Result<usize> {
    if fs::read(fresh)? == fs::read(checked_in)? {
        return Ok(0);
    }
    println!("differs: {}", checked_in.display());
    if !check {
        fs::copy(fresh, checked_in)?;
    }
    Ok(1)
}

/// The same for the table and, where the facts are new, for the descriptions.
fn update_table(config: &Config, arguments: &Arguments) -> Result<usize> {
    let work = config.root.join("target/codegen");
    fs::create_dir_all(&work)?;
    let mut compile = compiler(&config.root);
    compile.arg(&work);
    let mut names = vec!["table.bin"];
    if !arguments.table_only {
        compile.arg(work.join("facts/descriptions.jsonl"));
        names.push("descriptions.bin");
    }
    process::run(&mut compile)?;
    let mut differing = 0;
    for name in names {
        let checked_in = config.root.join("machinery/api/src").join(name);
        differing += update_file(&work.join(name), &checked_in, arguments.check)?;
    }
    Ok(differing)
}

/// The compiler of table and descriptions, built with the features of its own package alone. Features of the whole workspace,
/// which a caller's environment may unify, change the compression and with it every byte of the descriptions.
fn compiler(root: &Path) -> Command {
    let mut compile = process::cargo(root);
    FEATURES.iter().for_each(|name| {
        compile.env_remove(name);
    });
    compile
        .args(["run", "--quiet", "--package", "machinery-api"])
        .args(["--example", "compile_table", "--"]);
    compile
}

fn read_facts(config: &Config, work: &Path, fresh: &Path) -> Result<()> {
    tools::ensure(config, &["facts"])?;
    let upstream = Upstream::start(config, &work.join("upstream"), upstream::Options::default())?;
    if fresh.try_exists()? {
        fs::remove_dir_all(fresh)?;
    }
    process::run(
        process::command(config.tools.join("facts"))
            .args(["-server", &upstream.server, "-token", upstream.token])
            .arg("-out")
            .arg(fresh)
            // The extractor asks the go command for the folders of upstream's sources.
            .current_dir(config.root.join("conformance/tools")),
    )
}

/// Names of the JSON files that are not the same in both folders.
fn differing_files(left: &Path, right: &Path) -> Result<Vec<PathBuf>> {
    let mut names = BTreeSet::new();
    for root in [left, right] {
        collect_json(root, root, &mut names)?;
    }
    let same = |name: &PathBuf| {
        let read = |root: &Path| fs::read(root.join(name)).ok();
        read(left) == read(right)
    };
    Ok(names.into_iter().filter(|name| !same(name)).collect())
}

fn collect_json(root: &Path, folder: &Path, names: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !folder.try_exists()? {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_json(root, &path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            names.insert(path.strip_prefix(root)?.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codegen_compiles_with_features_that_no_caller_chooses() {
        let compile = compiler(Path::new("/"));
        for name in FEATURES {
            let mut set = compile.get_envs().filter(|(own, _)| *own == name);
            assert_eq!(set.next().map(|(_, value)| value), Some(None), "{name}");
        }
    }
}
