//! `cargo xtask tidy`: rules that no compiler checks. The arrows between crates and their figure ([`arrows`]), the numbers of
//! the pages ([`pages`]), their links ([`links`]) and what the README says of features ([`status`]), forgotten steps ([`forgotten`]), circles of imports inside a crate ([`circles`]), its layers ([`layers`]),
//! counts that may not grow ([`counts`]), words in texts for users ([`words`]), dependencies without use ([`dependencies`]), the licences and the reasons of others,
//! the length of files, and paths of one machine in the tree.

mod arrows;
mod circles;
mod counts;
mod dependencies;
mod dialect;
mod forgotten;
mod layers;
mod links;
mod pages;
mod status;
mod words;

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Permission to redraw figures, and what to print besides findings.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Redraw the figure of crates in ARCHITECTURE.md instead of reporting that it is out of date, and lower the counts in
    /// xtask/src/tidy/counts.tsv to what there is.
    #[arg(long)]
    write: bool,
    /// Print what the counts are of: circles of imports, long files.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    let metadata = metadata(config)?;
    let texts = texts(config)?;
    let mut problems = arrows::forbidden(&metadata);
    problems.extend(arrows::figure(config, &metadata, arguments.write)?);
    problems.extend(licences(&metadata));
    problems.extend(reasons(config, &metadata)?);
    problems.extend(dependencies::unused(&metadata, &texts));
    problems.extend(pages::decisions(&texts));
    problems.extend(links::links(&texts, |path| {
        config.root.join(path).try_exists().unwrap_or(false)
    }));
    problems.extend(links::parts(&texts));
    problems.extend(pages::doubled(&texts));
    problems.extend(status::unenforced(&texts));
    problems.extend(status::sections(&texts));
    problems.extend(status::specs(&texts));
    problems.extend(forgotten::modules(&texts));
    problems.extend(forgotten::kinds(&texts));
    problems.extend(forgotten::recipes(&texts));
    problems.extend(forgotten::commands(&texts));
    problems.extend(pages::summary(&texts));
    problems.extend(files(&texts));
    let circles = circles::all(&texts);
    problems.extend(circles::large(&circles));
    problems.extend(counted(config, arguments, &texts, &circles)?);
    problems.extend(layers::layers(&texts));
    problems.extend(words::words(&texts));
    problems.extend(words::docs(&texts));
    problems.extend(words::actors(&texts));
    problems.extend(words::comments(&texts));
    problems.extend(words::names(&texts));
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} findings", problems.len());
    }
    Ok(())
}

/// Counts that have grown.
fn counted(
    config: &Config,
    arguments: &Arguments,
    texts: &BTreeMap<String, String>,
    circles: &[circles::Circle<'_>],
) -> Result<Vec<String>> {
    let found = counts::found(texts, circles);
    if arguments.list {
        for line in found.iter().flat_map(|(_, all)| all) {
            println!("{line}");
        }
    }
    let page = texts.get(counts::PAGE).map_or("", String::as_str);
    if arguments.write {
        std::fs::write(config.root.join(counts::PAGE), counts::lowered(page, &found))?;
    }
    Ok(counts::grown(page, &found))
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    workspace_root: String,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    license_file: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
    /// `package.metadata` of its manifest.
    #[serde(default)]
    metadata: serde_json::Value,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    rename: Option<String>,
    path: Option<String>,
}

fn metadata(config: &Config) -> Result<Metadata> {
    let mut command = process::cargo(&config.root);
    command.args(["metadata", "--format-version", "1", "--locked"]);
    serde_json::from_str(&process::output(&mut command)?).context("reading cargo metadata")
}

impl Metadata {
    fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// Licences under which a dependency may come.
const LICENCES: [&str; 16] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "Unlicense",
    "BSL-1.0",
    "0BSD",
    "MPL-2.0",
    "MPL-2.0+",
    "CDLA-Permissive-2.0",
];

fn licences(metadata: &Metadata) -> Vec<String> {
    let acceptable = |expression: &str| {
        let any = expression.replace('/', " OR ").replace(['(', ')'], "");
        any.split(" OR ")
            .any(|all| all.split(" AND ").all(|one| LICENCES.contains(&one.trim())))
    };
    let foreign = metadata
        .packages
        .iter()
        .filter(|package| !metadata.workspace_members.contains(&package.id));
    foreign
        .filter(|package| match &package.license {
            Some(expression) => !acceptable(expression),
            None => package.license_file.is_none(),
        })
        .map(|package| {
            format!(
                "{}: licence {:?} is not on the list in xtask/src/tidy/mod.rs",
                package.name, package.license
            )
        })
        .collect()
}

/// Every direct dependency has its line in `docs/dependencies.md`, and every line its dependency.
fn reasons(config: &Config, metadata: &Metadata) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(config.root.join("docs/dependencies.md"))?;
    let explained: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .flat_map(|(names, _)| names.split(", "))
        .filter(|name| *name != "crate")
        .collect();
    let used: BTreeSet<&str> = metadata
        .ours()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.path.is_none())
        .map(|dependency| dependency.name.as_str())
        .collect();
    let unexplained = used
        .difference(&explained)
        .map(|name| format!("docs/dependencies.md: no line for {name}"));
    let unused = explained
        .difference(&used)
        .map(|name| format!("docs/dependencies.md: {name} is no dependency of the workspace"));
    Ok(unexplained.chain(unused).collect())
}

/// A file longer than this is two subjects, unless it is one long table.
const MAX_LINES: usize = 700;

/// Text files by path from the root.
type Texts = BTreeMap<String, String>;

/// Files of a test, by path.
#[cfg(test)]
fn texts_of(files: &[(&str, &str)]) -> Texts {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

/// The text files of the tree, by path from the root: those of a change that git does not track yet are among them.
fn texts(config: &Config) -> Result<Texts> {
    let listed = process::output(process::command("git").current_dir(&config.root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let text = |name: &str| {
        Some((
            name.to_owned(),
            std::fs::read_to_string(config.root.join(name)).ok()?,
        ))
    };
    Ok(listed.lines().filter_map(text).collect())
}

fn files(texts: &BTreeMap<String, String>) -> Vec<String> {
    let machines = ["work", "root"].map(|folder| format!("/{folder}/"));
    let mut problems = Vec::new();
    for (name, text) in texts.iter().filter(|(name, _)| !name.ends_with(".lock")) {
        if machines.iter().any(|path| text.contains(path)) {
            problems.push(format!("{name}: names a path of one machine"));
        }
        let table = text.lines().take(12).any(|line| line.contains("one long table"));
        let lines = text.lines().count();
        if name.ends_with(".rs") && lines > MAX_LINES && !table && !is_test(name) {
            problems.push(format!("{name}: {lines} lines; is it two subjects?"));
        }
    }
    problems
}

fn is_test(name: &str) -> bool {
    let path = Path::new(name);
    path.ends_with("tests.rs")
        || path.ends_with("suite.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
        || name.ends_with("_tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_git_does_not_track_yet_are_read_and_ignored_ones_are_not() {
        let root = std::env::temp_dir().join(format!("knarr-tidy.{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let git = |arguments: &[&str]| {
            process::output(process::command("git").current_dir(&root).args(arguments)).unwrap()
        };
        git(&["init", "--quiet"]);
        for (name, text) in [
            (".gitignore", "made.rs\n"),
            ("tracked.rs", ""),
            ("new.rs", ""),
            ("made.rs", ""),
        ] {
            std::fs::write(root.join(name), text).unwrap();
        }
        git(&["add", "tracked.rs"]);
        let config = Config {
            tools: root.clone(),
            root,
        };
        let found = texts(&config).unwrap();
        std::fs::remove_dir_all(&config.root).unwrap();
        assert!(
            found.keys().eq([".gitignore", "new.rs", "tracked.rs"]),
            "{found:?}"
        );
    }
}
