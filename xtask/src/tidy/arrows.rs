//! The arrows between crates: which crate may use which, and their figure in `ARCHITECTURE.md`, drawn from the manifests.

use super::{Metadata, Package};
use crate::config::Config;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const RUNTIME: &str = "machinery-runtime";

/// Crates of ours that each of ours may use, besides itself: the arrows.
/// Crates that act may also use `machinery-runtime`; a test may use anything.
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
        "machinery-cel",
    ];
    // The manager checks types of expressions, the scheduler evaluates selectors of devices, as upstream's do.
    const CONTROLLER: &[&str] = &[
        "machinery-meta",
        "machinery-api",
        "machinery-semantics",
        "machinery-cel",
        "machinery-client",
        "machinery-reconcile",
        "machinery-x509",
    ];
    const NODE: &[&str] = &[
        "machinery-meta",
        "machinery-api",
        "machinery-semantics",
        "machinery-client",
        "machinery-views",
        "node-sys",
    ];
    BTreeMap::from([
        ("machinery-meta", &[] as &[&str]),
        ("machinery-fuzz", &[]),
        ("machinery-runtime", &[]),
        ("machinery-pod-security", &["machinery-meta"]),
        ("machinery-x509", &["machinery-meta"]),
        ("machinery-schema", &["machinery-meta"]),
        ("machinery-api", &["machinery-meta", "machinery-schema"]),
        ("machinery-cel", &["machinery-meta", "machinery-schema"]),
        (
            "machinery-semantics",
            &["machinery-meta", "machinery-schema", "machinery-api"],
        ),
        (
            "machinery-client",
            &["machinery-meta", "machinery-schema", "machinery-api"],
        ),
        (
            "machinery-reconcile",
            &["machinery-meta", "machinery-api", "machinery-client"],
        ),
        ("machinery-views", &["machinery-meta", "machinery-client"]),
        ("apiserver-storage", &["machinery-meta"]),
        ("apiserver-etcd-model", &[]),
        ("apiserver-kms-model", &[]),
        (
            "apiserver-registry",
            &[
                "machinery-cel",
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "machinery-semantics",
                "machinery-x509",
                "apiserver-storage",
                "machinery-x509",
            ],
        ),
        ("apiserver-egress", &["machinery-meta", "machinery-x509"]),
        (
            "apiserver-auth",
            &[
                "machinery-cel",
                "machinery-meta",
                "machinery-schema",
                "machinery-api",
                "machinery-x509",
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
                "machinery-pod-security",
                "machinery-cel",
                "apiserver-auth",
                "apiserver-egress",
                "apiserver-registry",
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
        ("node-plugin-api", &[]),
        ("node-cri-model", &["node-sys", "node-cri"]),
        ("node-network", NODE),
        ("node-volume", NODE),
        ("node-proxy", NODE),
        ("node-dns", NODE),
        (
            "node-kubelet",
            &[
                "machinery-meta",
                "machinery-x509",
                "machinery-api",
                "machinery-semantics",
                "machinery-client",
                "node-sys",
                "node-cri",
                "node-network",
                "node-plugin-api",
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

/// Dependencies of a crate of ours on another that no arrow allows.
pub(super) fn forbidden(metadata: &Metadata) -> Vec<String> {
    let allowed = allowed();
    let mut problems = Vec::new();
    for package in metadata.ours() {
        let binary = package.name == "knarr" || package.name == "xtask";
        let Some(may_use) = allowed.get(package.name.as_str()) else {
            if !binary {
                problems.push(format!(
                    "{}: a crate without an arrow; add it to xtask/src/tidy/arrows.rs",
                    package.name
                ));
            }
            continue;
        };
        for used in package.used() {
            let runtime = used == RUNTIME && !PURE.contains(&package.name.as_str());
            if !runtime && !may_use.contains(&used) {
                problems.push(format!("{} must not use {used}", package.name));
            }
        }
    }
    problems
}

/// Our crates and those of ours that each uses outside of tests.
type Arrows<'m> = BTreeMap<&'m str, BTreeSet<&'m str>>;

impl Package {
    /// Crates of ours that this one uses outside of tests.
    fn used(&self) -> impl Iterator<Item = &str> {
        let used = |dependency: &&super::Dependency| {
            dependency.path.is_some() && dependency.kind.as_deref() != Some("dev")
        };
        self.dependencies
            .iter()
            .filter(used)
            .map(|dependency| dependency.name.as_str())
    }
}

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- drawn from the manifests by `cargo xtask tidy --write` -->\n";
const END: &str = "<!-- end of the drawing -->\n";

/// Compares the figure of [`PAGE`] with the manifests, or redraws it.
pub(super) fn figure(config: &Config, metadata: &Metadata, write: bool) -> Result<Vec<String>> {
    let path = config.root.join(PAGE);
    let page = std::fs::read_to_string(&path).context(PAGE)?;
    let (before, rest) = page
        .split_once(BEGIN)
        .context("ARCHITECTURE.md has no figure of crates")?;
    let (drawn, after) = rest.split_once(END).context("the figure of crates has no end")?;
    let figure = draw(&arrows(metadata));
    if drawn == figure {
        return Ok(Vec::new());
    }
    if write {
        std::fs::write(&path, [before, BEGIN, &figure, END, after].concat())?;
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "{PAGE}: the figure of crates differs from the manifests; `cargo xtask tidy --write` redraws it"
    )])
}

fn arrows(metadata: &Metadata) -> Arrows<'_> {
    let ours = metadata.ours().filter(|package| package.name != "xtask");
    ours.map(|package| (package.name.as_str(), package.used().collect()))
        .collect()
}

/// The figure for eyes, which leaves out what follows from other arrows, and the whole list below it.
fn draw(arrows: &Arrows<'_>) -> String {
    let mut text = String::from("```mermaid\nflowchart TD\n");
    for (folder, crates) in by_folder(arrows) {
        let Some(folder) = folder else {
            continue;
        };
        let _ = writeln!(text, "  subgraph {folder}");
        for name in crates {
            let _ = writeln!(text, "    {}[{}]", node(name), &name[folder.len() + 1..]);
        }
        text.push_str("  end\n");
    }
    for (name, used) in arrows {
        for other in used {
            if *other != RUNTIME && !follows(arrows, used, other) {
                let _ = writeln!(text, "  {} --> {}", node(name), node(other));
            }
        }
    }
    text.push_str("```\n\n```text\n");
    for (name, used) in arrows {
        let used: Vec<&str> = used.iter().copied().collect();
        let list = if used.is_empty() {
            "(nothing of ours)".to_owned()
        } else {
            used.join(", ")
        };
        let _ = writeln!(text, "{name:<22} -> {list}");
    }
    text + "```\n"
}

/// Crates by the folder they lie in; those of the root have none.
fn by_folder<'m>(arrows: &Arrows<'m>) -> BTreeMap<Option<&'m str>, Vec<&'m str>> {
    let mut folders = BTreeMap::<_, Vec<_>>::new();
    for name in arrows.keys() {
        let folder = name.split_once('-').map(|(folder, _)| folder);
        folders.entry(folder).or_default().push(*name);
    }
    folders
}

/// Reports whether another used crate leads to this one, so that its own arrow adds nothing.
fn follows(arrows: &Arrows<'_>, used: &BTreeSet<&str>, to: &str) -> bool {
    used.iter().any(|via| *via != to && leads(arrows, via, to))
}

fn leads(arrows: &Arrows<'_>, from: &str, to: &str) -> bool {
    let next = arrows.get(from).into_iter().flatten();
    from == to || next.into_iter().any(|via| leads(arrows, via, to))
}

/// A name that Mermaid takes for a node.
fn node(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_that_follow_from_others_are_listed_and_not_drawn() {
        let arrows = BTreeMap::from([
            (
                "cluster",
                BTreeSet::from(["machinery-client", "machinery-meta", RUNTIME]),
            ),
            ("machinery-client", BTreeSet::from(["machinery-meta"])),
            ("machinery-meta", BTreeSet::new()),
            (RUNTIME, BTreeSet::new()),
        ]);
        let text = draw(&arrows);
        let drawn: Vec<&str> = text.lines().filter(|line| line.contains("-->")).collect();
        assert_eq!(
            drawn,
            [
                "  cluster --> machinery_client",
                "  machinery_client --> machinery_meta"
            ]
        );
        assert!(
            text.contains("cluster                -> machinery-client, machinery-meta, machinery-runtime\n")
        );
        assert!(text.contains("machinery-meta         -> (nothing of ours)\n"));
    }
}
