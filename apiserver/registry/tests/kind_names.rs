//! Names of built-in kinds in the API server's code: each is in the one table of kinds, so that a misspelt one is no rule that
//! never holds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Words of the core group's pairs that name no kind: verbs, and kinds as messages name them.
const OTHER_WORDS: [&str; 17] = [
    "create",
    "delete",
    "get",
    "list",
    "node",
    "patch",
    "persistentvolume",
    "persistentvolumeclaim",
    "pod",
    "serviceaccount",
    "update",
    "watch",
    "log",
    // Other groups' in messages.
    "csidriver",
    "poddisruptionbudget",
    // Allocations, which upstream stores beside the kinds.
    "serviceipallocations",
    "servicenodeportallocations",
];

/// Rust files below a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "suite.rs" {
            found.push(path);
        }
    }
}

/// A text of this code that begins here, and what follows it.
fn literal(code: &str) -> Option<(&str, &str)> {
    let (text, rest) = code.strip_prefix('"')?.split_once('"')?;
    (!text.contains(['\n', '\\'])).then_some((text, rest.trim_start()))
}

/// Texts with `|` between them.
fn alternatives(code: &str) -> Option<(Vec<&str>, &str)> {
    let (first, mut rest) = literal(code.trim_start())?;
    let mut all = vec![first];
    while let Some(more) = rest.strip_prefix('|') {
        let (next, after) = literal(more.trim_start())?;
        all.push(next);
        rest = after;
    }
    Some((all, rest))
}

/// Pairs of texts that begin a tuple, a pattern or the arguments of a call: `("apps", "deployments" | "replicasets")`.
fn pairs(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('(') {
        let Some((groups, rest)) = alternatives(&code[at + 1..]) else {
            continue;
        };
        let Some((names, rest)) = rest.strip_prefix(',').and_then(alternatives) else {
            continue;
        };
        if rest.starts_with([')', ',']) {
            found.extend(
                groups
                    .iter()
                    .flat_map(|group| names.iter().map(|name| (*group, *name))),
            );
        }
    }
    found
}

fn is_lower_case_word(name: &str) -> bool {
    name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// A pair of a group and a lower-case word, where the word should be a kind's plural.
fn is_of_a_kind(groups: &BTreeSet<&str>, (group, name): (&str, &str)) -> bool {
    groups.contains(group) && is_lower_case_word(name) && !OTHER_WORDS.contains(&name)
}

#[test]
fn kinds_named_in_the_code_are_in_the_table() {
    let table = machinery_api::table();
    let known: BTreeSet<(&str, &str)> = table
        .kinds()
        .iter()
        .map(|kind| (kind.gvk.group.as_str(), kind.plural.as_str()))
        .collect();
    let groups: BTreeSet<&str> = known.iter().map(|(group, _)| *group).collect();
    let mut files = Vec::new();
    let apiserver = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder of crates");
    for entry in std::fs::read_dir(apiserver).expect("the crates") {
        sources(&entry.expect("a crate").path().join("src"), &mut files);
    }
    let (mut checked, mut unknown) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for pair in pairs(code)
            .into_iter()
            .filter(|pair| is_of_a_kind(&groups, *pair))
        {
            checked += 1;
            if !known.contains(&pair) {
                unknown.push(format!("{}: {pair:?}", file.display()));
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new(), "kinds that the table has not");
    assert!(
        checked > 150,
        "only {checked} names were found: is the code written otherwise now?"
    );
}

#[test]
fn kinds_with_columns_are_in_the_table() {
    let table = machinery_api::table();
    let resources = include_str!("../src/shared/columns/headers.tsv")
        .lines()
        .filter(|line| !line.starts_with(['=', '\t']));
    for resource in resources {
        let parts: Vec<&str> = resource.split('/').collect();
        let [group, version, plural] = parts[..] else {
            panic!("{resource} is no group/version/plural");
        };
        assert!(table.resource(group, version, plural).is_some(), "{resource}");
    }
}

#[test]
fn pairs_of_the_code_are_found_in_every_form() {
    let code = r#"match (group, plural) { ("" | "events.k8s.io", "events") => 1, ("apps", "daemonsets", "x") => 2,
        ( "batch",
          "jobs" | "cronjobs",
        ) => 3, ("a\"b", "c") => 4, (group, "pods") => 5, }"#;
    let found = pairs(code);
    assert_eq!(
        found,
        [
            ("", "events"),
            ("events.k8s.io", "events"),
            ("apps", "daemonsets"),
            ("batch", "jobs"),
            ("batch", "cronjobs"),
        ]
    );
}
