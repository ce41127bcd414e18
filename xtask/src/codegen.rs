//! `cargo xtask codegen [--check]`: the facts about the built-in kinds, from upstream's code and server.
//!
//! A fresh kube-apiserver with default flags is started, and `conformance/tools/facts` asked to write down what it and
//! upstream's types say, into `machinery/api/facts` (described there in `README.md`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::upstream::{self, Upstream};
use crate::{process, tools};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Compare with what is checked in, and change nothing.
    #[arg(long)]
    pub check: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let checked_in = config.root.join("machinery/api/facts");
    let work = config.root.join("target/codegen");
    let fresh = work.join("facts");
    read_facts(config, &work, &fresh)?;
    let differing = differing_files(&fresh, &checked_in)?;
    if differing.is_empty() {
        println!("the facts are up to date");
        return Ok(());
    }
    for name in &differing {
        println!("differs: {}", name.display());
    }
    if arguments.check {
        bail!(
            "{} files of facts differ from what upstream says; run cargo xtask codegen",
            differing.len()
        );
    }
    for name in &differing {
        let (from, to) = (fresh.join(name), checked_in.join(name));
        if from.try_exists()? {
            fs::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs::copy(from, to)?;
        } else {
            fs::remove_file(to)?;
        }
    }
    Ok(())
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
