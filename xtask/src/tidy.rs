//! `cargo xtask tidy`: what no compiler checks. The arrows between crates, the licences and the reasons of
//! dependencies, the length of files, and that nobody committed a machine's path.

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// No choice to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(config: &Config, _: &Arguments) -> Result<()> {
    let metadata = metadata(config)?;
    let mut problems = arrows(&metadata);
    problems.extend(licences(&metadata));
    problems.extend(reasons(config, &metadata)?);
    problems.extend(files(config)?);
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} findings", problems.len());
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    license_file: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
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

/// Which of our crates each may use, besides itself: the block of `STYLE.md`.
/// Whatever acts may also use `machinery-runtime`; a test may use anything.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    const APISERVER: &[&str] = &[
        "machinery-meta",
        "machinery-schema",
        "machinery-api",
        "apiserver-storage",
        "apiserver-registry",
        "apiserver-auth",
        "apiserver-admission",
        "apiserver-egress",
        "apiserver-endpoints",
        "machinery-semantics",
    ];
    const CONTROLLER: &[&str] = &[
        "machinery-meta",
        "machinery-api",
        "machinery-semantics",
        "machinery-client",
        "machinery-reconcile",
    ];
    const NODE: &[&str] = &[
        "machinery-meta",
        "machinery-api",
        "machinery-semantics",
        "machinery-client",
        "node-sys",
    ];
    BTreeMap::from([
        ("machinery-meta", &[] as &[&str]),
        ("machinery-fuzz", &[]),
        ("machinery-runtime", &[]),
        ("machinery-schema", &["machinery-meta"]),
        ("machinery-api", &["machinery-meta", "machinery-schema"]),
        ("machinery-semantics", &["machinery-meta", "machinery-api"]),
        (
            "machinery-client",
            &["machinery-meta", "machinery-schema", "machinery-api"],
        ),
        (
            "machinery-reconcile",
            &["machinery-meta", "machinery-api", "machinery-client"],
        ),
        ("apiserver-storage", &["machinery-meta"]),
        ("apiserver-etcd-model", &[]),
        (
            "apiserver-registry",
            &[
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "machinery-semantics",
                "apiserver-storage",
            ],
        ),
        ("apiserver-egress", &["machinery-meta"]),
        (
            "apiserver-auth",
            &[
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "apiserver-egress",
            ],
        ),
        (
            "apiserver-admission",
            &[
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "machinery-semantics",
                "apiserver-egress",
            ],
        ),
        (
            "apiserver-endpoints",
            &[
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "apiserver-registry",
                "apiserver-auth",
                "apiserver-admission",
                "apiserver-egress",
            ],
        ),
        ("apiserver-server", APISERVER),
        ("controllers-manager", CONTROLLER),
        ("controllers-scheduler", CONTROLLER),
        (
            "cluster",
            &[
                "machinery-meta",
                "machinery-client",
                "apiserver-server",
                "apiserver-storage",
                "controllers-manager",
                "controllers-scheduler",
            ],
        ),
        ("node-sys", &[]),
        ("node-cri", &[]),
        ("node-cri-model", &["node-sys", "node-cri"]),
        ("node-network", NODE),
        ("node-volume", NODE),
        ("node-proxy", NODE),
        ("node-dns", NODE),
        (
            "node-kubelet",
            &[
                "machinery-meta",
                "machinery-api",
                "machinery-semantics",
                "machinery-client",
                "node-sys",
                "node-cri",
                "node-network",
                "node-volume",
            ],
        ),
        (
            "conformance",
            &["machinery-meta", "machinery-api", "machinery-client"],
        ),
    ])
}

/// Crates that hold no async, clock, file or socket.
const PURE: [&str; 4] = [
    "machinery-meta",
    "machinery-schema",
    "machinery-api",
    "machinery-semantics",
];

fn arrows(metadata: &Metadata) -> Vec<String> {
    let allowed = allowed();
    let mut problems = Vec::new();
    for package in metadata.ours() {
        let binary = package.name == "knarr" || package.name == "xtask";
        let Some(may_use) = allowed.get(package.name.as_str()) else {
            if !binary {
                problems.push(format!(
                    "{}: a crate without an arrow; add it to tidy.rs and STYLE.md",
                    package.name
                ));
            }
            continue;
        };
        let used = package
            .dependencies
            .iter()
            .filter(|d| d.path.is_some() && d.kind.as_deref() != Some("dev"));
        for dependency in used {
            let runtime = dependency.name == "machinery-runtime" && !PURE.contains(&package.name.as_str());
            if !runtime && !may_use.contains(&dependency.name.as_str()) {
                problems.push(format!("{} must not use {}", package.name, dependency.name));
            }
        }
    }
    problems
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
                "{}: licence {:?} is not on the list in tidy.rs",
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
        .map(|name| format!("docs/dependencies.md: nobody uses {name}"));
    Ok(unexplained.chain(unused).collect())
}

/// A file longer than this is two subjects, unless it is one long table.
const MAX_LINES: usize = 700;

fn files(config: &Config) -> Result<Vec<String>> {
    let listed = process::output(
        process::command("git")
            .current_dir(&config.root)
            .args(["ls-files"]),
    )?;
    let mut problems = Vec::new();
    for name in listed
        .lines()
        .filter(|name| !name.ends_with(".bin") && !name.ends_with(".lock"))
    {
        let Ok(text) = std::fs::read_to_string(config.root.join(name)) else {
            continue;
        };
        let own_rules = name == "xtask/src/tidy.rs";
        if !own_rules && ["/work/", "/root/"].iter().any(|path| text.contains(path)) {
            problems.push(format!("{name}: names a path of one machine"));
        }
        let table = text.lines().take(12).any(|line| line.contains("one long table"));
        if name.ends_with(".rs") && text.lines().count() > MAX_LINES && !table && !is_test(name) {
            problems.push(format!(
                "{name}: {} lines; is it two subjects?",
                text.lines().count()
            ));
        }
    }
    Ok(problems)
}

fn is_test(name: &str) -> bool {
    let path = Path::new(name);
    path.ends_with("tests.rs")
        || path.ends_with("suite.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}
