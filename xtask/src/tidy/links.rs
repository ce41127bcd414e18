//! Links of the pages: each leads to a file, and to a heading of it where it names a part.

use super::Texts;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Links of Markdown pages to files that are not there.
pub(super) fn links(texts: &Texts, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        for target in targets(text) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains(':');
            if !elsewhere && !exists(&plain(&folder.join(file))) {
                problems.push(format!("{path}: the link to {target} leads nowhere"));
            }
        }
    }
    problems
}

/// Links to a part of a page that has no heading of that name.
pub(super) fn parts(texts: &Texts) -> Vec<String> {
    let pages = texts.iter().filter(|(path, _)| path.ends_with(".md"));
    let named: BTreeMap<&str, BTreeSet<String>> = pages
        .clone()
        .map(|(path, text)| (path.as_str(), names(text)))
        .collect();
    let mut problems = Vec::new();
    for (path, text) in pages {
        for target in targets(text) {
            let Some((file, part)) = target.split_once('#') else {
                continue;
            };
            let page = match file {
                "" => PathBuf::from(path),
                file => plain(&Path::new(path).with_file_name(file)),
            };
            let names = page.to_str().and_then(|page| named.get(page));
            if names.is_some_and(|names| !names.contains(part)) {
                problems.push(format!("{path}: the link to {target} leads to no heading"));
            }
        }
    }
    problems
}

/// Names of the headings of a page, as sites make them: letters and digits, with `-` for each blank. Of a heading that comes
/// again the name has a number.
fn names(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines).filter(|line| line.starts_with('#'));
    let mut seen = BTreeMap::<String, usize>::new();
    let own = |line: &str| {
        let heading = line.trim_start_matches('#').trim();
        let name = name(heading);
        let again = seen.entry(name.clone()).or_default();
        *again += 1;
        match *again {
            1 => name,
            again => format!("{name}-{}", again - 1),
        }
    };
    lines.map(own).collect()
}

/// Name of a heading that comes once.
pub(super) fn name(heading: &str) -> String {
    heading.chars().filter_map(character).collect()
}

fn character(of: char) -> Option<char> {
    match of {
        of if of.is_whitespace() => Some('-'),
        '-' | '_' => Some(of),
        of => of.is_alphanumeric().then(|| of.to_ascii_lowercase()),
    }
}

/// Targets of the links of a page; blocks of code have none.
pub(super) fn targets(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| {
        part.split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0))
    })
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::texts_of as texts;
    use super::*;

    #[test]
    fn links_lead_to_files() {
        let page =
            "[a](../a.md#part) [b](b.md) [c](https://c) [d](#part)\n```sh\n[e](e.md)\n```\n[f](f.md)\n";
        let there = ["a.md", "docs/b.md"].map(Path::new);
        assert_eq!(
            links(&texts(&[("docs/page.md", page)]), |path| there.contains(&path)),
            ["docs/page.md: the link to f.md leads nowhere"]
        );
    }

    #[test]
    fn links_to_parts_lead_to_headings() {
        let page = "# Of `a_b`, and C\n[a](#of-a_b-and-c) [b](#c) [c](b.md#part) [d](b.md#part-1) [e](b.md#part-2)\n";
        let other = "# Part\n```sh\n# Comment\n```\n## Part\n[a](../c.rs#comment) [b](a.md#d)\n";
        let files = [("docs/a.md", page), ("docs/b.md", other), ("c.rs", "")];
        assert_eq!(
            parts(&texts(&files)),
            [
                "docs/a.md: the link to #c leads to no heading",
                "docs/a.md: the link to b.md#part-2 leads to no heading",
                "docs/b.md: the link to a.md#d leads to no heading",
            ]
        );
    }
}
