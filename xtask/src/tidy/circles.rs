//! Import circles: files of a crate that import each other, directly or around corners. Small ones are one subject in several
//! files; a large one has no file that can be read first.

use std::collections::{BTreeMap, BTreeSet};

/// Files of the largest circle that may be.
const MOST: usize = 4;

/// A module by its path below the crate, and its place among the crate's modules.
type Modules = BTreeMap<Vec<String>, usize>;

/// A circle of files, by the folder of its crate's sources.
pub(super) type Circle<'t> = (&'t str, Vec<String>);

/// Every circle, crate by crate, the largest of a crate first.
pub(super) fn all(texts: &BTreeMap<String, String>) -> Vec<Circle<'_>> {
    let of = |folder| {
        circles_of(folder, texts)
            .into_iter()
            .map(move |circle| (folder, circle))
    };
    crates(texts).into_iter().flat_map(of).collect()
}

/// Circles of more files than one may have.
pub(super) fn large(circles: &[Circle<'_>]) -> Vec<String> {
    let large = circles.iter().filter(|(_, circle)| circle.len() > MOST);
    let finding = |(folder, circle): &Circle<'_>| {
        format!(
            "{folder}: {} files import each other, of which {MOST} may: {}",
            circle.len(),
            circle.join(" ")
        )
    };
    large.map(finding).collect()
}

/// Folders of sources, as `apiserver/storage/src`.
fn crates(texts: &BTreeMap<String, String>) -> BTreeSet<&str> {
    let roots = texts.keys().filter_map(|name| {
        name.strip_suffix("/lib.rs")
            .or_else(|| name.strip_suffix("/main.rs"))
    });
    roots.filter(|folder| folder.ends_with("/src")).collect()
}

/// Files that import each other, as modules of the crate in this folder, the largest circle first.
fn circles_of(folder: &str, texts: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let mut modules = Modules::new();
    let mut sources = Vec::new();
    for (name, text) in texts {
        let Some(path) = name
            .strip_prefix(folder)
            .and_then(|rest| module_path(rest.strip_prefix('/')?))
        else {
            continue;
        };
        modules.insert(path, sources.len());
        sources.push(text);
    }
    let mut edges = vec![Vec::new(); sources.len()];
    for (path, at) in &modules {
        let imported = imports(&plain(sources[*at]));
        let targets = imported
            .iter()
            .filter_map(|import| target(import, path, &modules));
        edges[*at] = targets.filter(|to| to != at).collect();
    }
    let names: BTreeMap<usize, String> = modules.iter().map(|(path, at)| (*at, path.join("/"))).collect();
    let mut circles: Vec<Vec<String>> = components(&edges)
        .into_iter()
        .map(|files| files.iter().map(|at| names[at].clone()).collect())
        .collect();
    circles.sort_by_key(|circle: &Vec<String>| std::cmp::Reverse(circle.len()));
    circles
}

/// The module that a file below the sources is; the crate's root and tests are none.
pub(super) fn module_path(file: &str) -> Option<Vec<String>> {
    let mut path: Vec<String> = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    let is_test = path
        .iter()
        .any(|part| part.as_str() == "tests" || part.ends_with("_tests"));
    let is_root = matches!(path.as_slice(), [root] if root == "lib" || root == "main");
    path.pop_if(|last| *last == "mod");
    (!is_test && !is_root && !path.is_empty()).then_some(path)
}

/// A text without comments and without the tests at its end.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_tests = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && opens_tests {
            break;
        }
        plain.push_str(line.split("//").next().unwrap_or_default());
        plain.push('\n');
    }
    plain
}

/// Paths that begin with `crate` or `super`, those of `use` one by one.
fn imports(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | '$' | ':')) {
                continue;
            }
            let end = text[at..].find([';', '(', ')', '<', '>', '=']);
            let rest = &text[at..at + end.unwrap_or(text.len() - at)];
            let is_use = ["use ", "use\n"].iter().any(|word| text[..at].ends_with(word));
            match is_use {
                true => expand(rest, &mut paths),
                false => paths.push(head(rest).to_owned()),
            }
        }
    }
    paths
}

/// The path at the beginning of a text.
fn head(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && !matches!(character, '_' | ':'));
    &text[..end.unwrap_or(text.len())]
}

/// The paths of a tree of imports, as `a::{b, c::{d, e}}`.
fn expand(tree: &str, paths: &mut Vec<String>) {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return paths.push(head(tree.trim()).to_owned());
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let mut depth = 0_usize;
    let parts = inner.split(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        expand(&format!("{}{}", prefix.trim(), part.trim()), paths);
    }
}

/// The innermost module that a path leads to.
fn target(import: &str, from: &[String], modules: &Modules) -> Option<usize> {
    let mut here = from.to_vec();
    let mut steps = import.split("::").peekable();
    if steps.next_if_eq(&"crate").is_some() {
        here.clear();
    }
    while steps.next_if_eq(&"super").is_some() {
        here.pop();
    }
    for step in steps {
        here.push(step.to_owned());
        if !modules.contains_key(&here) {
            here.pop();
            break;
        }
    }
    modules.get(&here).copied()
}

/// Groups of more than one place that reach each other.
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reach(from, edges)).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut groups = Vec::new();
    for from in 0..edges.len() {
        if seen.contains(&from) {
            continue;
        }
        let group = |to: &&usize| reached[**to].contains(&from);
        let group: Vec<usize> = reached[from].iter().filter(group).copied().collect();
        seen.extend(&group);
        if group.len() > 1 {
            groups.push(group);
        }
    }
    groups
}

/// Every place that the edges lead to.
fn reach(from: usize, edges: &[Vec<usize>]) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        let fresh = edges[at].iter().filter(|to| reached.insert(**to));
        next.extend(fresh);
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_in(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files
            .iter()
            .map(|(name, text)| (format!("a/src/{name}"), (*text).to_owned()));
        circles_of("a/src", &files.collect())
    }

    #[test]
    fn circle_around_corners_is_found() {
        let files = [
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b/mod.rs", "mod e;\nuse crate::{c::{X, Y}, f};"),
            ("b/e.rs", "use super::Z;"),
            ("c.rs", "fn f(x: crate::d::T<u8>) {}"),
            ("d.rs", "use crate::b::e;\npub(crate) struct T;"),
        ];
        assert_eq!(circles_in(&files), [["b/e", "b", "c", "d"]]);
    }

    #[test]
    fn circles_of_more_than_four_files_are_named() {
        let files = |count: usize| -> BTreeMap<String, String> {
            let names = |at: usize| format!("m{}", at % count);
            let file = |at: usize| {
                (
                    format!("a/src/{}.rs", names(at)),
                    format!("use crate::{};", names(at + 1)),
                )
            };
            let root = ("a/src/lib.rs".to_owned(), String::new());
            (0..count).map(file).chain([root]).collect()
        };
        assert_eq!(large(&all(&files(4))), [""; 0]);
        assert_eq!(
            large(&all(&files(5))),
            ["a/src: 5 files import each other, of which 4 may: m0 m1 m2 m3 m4"]
        );
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let files = [
            ("b.rs", "use crate::c;\n"),
            (
                "c.rs",
                "// use crate::b;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
            ),
            ("d.rs", "use crate::tests;\n"),
            ("tests.rs", "use crate::d;\n"),
        ];
        assert_eq!(circles_in(&files), Vec::<Vec<String>>::new());
    }
}
