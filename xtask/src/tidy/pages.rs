//! Pages that point at each other: decisions have one number each, an index and no dead reference; the summary of the site
//! has every page.

use super::Texts;
use super::links::targets;
use std::collections::{BTreeMap, BTreeSet};

const DECISIONS: &str = "docs/decisions/";

/// Decisions whose number, heading or line in the index is wrong, and references to decisions that are not there.
pub(super) fn decisions(texts: &Texts) -> Vec<String> {
    let mut problems = Vec::new();
    let mut numbers = BTreeMap::<&str, &str>::new();
    let index = texts.get("docs/decisions/README.md").map_or("", String::as_str);
    for (path, text) in texts {
        let Some(name) = path.strip_prefix(DECISIONS).filter(|name| *name != "README.md") else {
            continue;
        };
        let number = name.split('-').next().unwrap_or_default();
        if let Some(other) = numbers.insert(number, name) {
            problems.push(format!("{path}: {other} has this number"));
        }
        if !text.starts_with(&format!("# {number}: ")) {
            problems.push(format!("{path}: begins with something else than `# {number}: `"));
        }
        let lines = index.lines();
        if lines
            .filter(|line| line.starts_with(&format!("| [{number}]({name}) |")))
            .count()
            != 1
        {
            problems.push(format!(
                "docs/decisions/README.md: not one line `| [{number}]({name}) |`"
            ));
        }
    }
    for (path, text) in texts {
        for number in references(text).filter(|number| !numbers.contains_key(number)) {
            problems.push(format!("{path}: there is no decision {number}"));
        }
    }
    problems
}

/// Numbers of four digits after the word decision, in prose and in paths.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("ecision").skip(1);
    after.filter_map(|rest| {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let number = rest.strip_prefix([' ', '/'])?.get(..4)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
    })
}

/// Rows of a table that begin with the same cell, and lines of the change log that begin alike: a merge has kept both sides.
pub(super) fn doubled(texts: &Texts) -> Vec<String> {
    let pages = texts.iter().filter(|(path, _)| path.ends_with(".md"));
    let doubled_of = |(path, text): (&String, &String)| {
        let what = "begins as the one before it: a merge kept both";
        let rows = neighbours(text, first_cell);
        let changes = match path.as_str() {
            "CHANGELOG.md" => neighbours(text, first_words),
            _ => Vec::new(),
        };
        let lines = rows.into_iter().chain(changes);
        lines
            .map(|line| format!("{path}:{line}: {what}"))
            .collect::<Vec<_>>()
    };
    pages.flat_map(doubled_of).collect()
}

/// Numbers of the lines whose beginning equals that of a line above it in the same table or list.
fn neighbours(text: &str, beginning: fn(&str) -> Option<&str>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match beginning(line) {
            Some(own) if !seen.insert(own) => found.push(at + 1),
            None if line.trim().is_empty() => seen.clear(),
            Some(_) | None => {}
        }
    }
    found
}

/// The first cell of a table's row, if it says something; one that is empty goes on with the row above.
fn first_cell(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split_once('|')?.0.trim();
    Some(cell).filter(|cell| !cell.is_empty() && !cell.starts_with("--"))
}

/// The first words of an item.
fn first_words(line: &str) -> Option<&str> {
    let item = line.strip_prefix("- ")?;
    Some(&item[..item.floor_char_boundary(WORDS_OF_A_CHANGE)])
}

/// Bytes at the beginning of a change by which it is known.
const WORDS_OF_A_CHANGE: usize = 48;

const SUMMARY: &str = "docs/SUMMARY.md";
const FRONT: &str = "docs/README.md";

/// Pages of `docs/` that the site's summary lacks or has twice, and those to which its front page does not lead. Decisions are in
/// their index, from which the site takes them.
pub(super) fn summary(texts: &Texts) -> Vec<String> {
    let summary = texts.get(SUMMARY).map_or("", String::as_str);
    let is_decision = |path: &str| path.starts_with(DECISIONS) && !path.ends_with("README.md");
    let pages = texts
        .keys()
        .filter_map(|path| Some((path, path.strip_prefix("docs/")?)))
        .filter(|(path, _)| path.ends_with(".md") && *path != SUMMARY && !is_decision(path));
    let count = |page: &str| targets(summary).filter(|target| *target == page).count();
    let front = texts.get(FRONT).map_or("", String::as_str);
    let led_to: BTreeSet<&str> = targets(front).collect();
    let unled = pages
        .clone()
        .filter(|(path, page)| *path != FRONT && !led_to.contains(page))
        .map(|(path, page)| format!("{FRONT}: no link leads to {path}, as `[title]({page})`"));
    pages
        .filter(|(_, page)| count(page) != 1)
        .map(|(path, page)| format!("{SUMMARY}: has not one line for {path}, as `- [Title]({page})`"))
        .chain(unled)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::texts_of as texts;
    use super::*;

    #[track_caller]
    fn check_decisions(files: &[(&str, &str)], expected: &[&str]) {
        assert_eq!(decisions(&texts(files)), expected);
    }

    #[test]
    fn decisions_have_one_number_one_heading_and_one_line() {
        let index = ("docs/decisions/README.md", "| [0001](0001-a.md) | A |\n");
        let first = ("docs/decisions/0001-a.md", "# 0001: A\n");
        check_decisions(&[index, first], &[]);
        check_decisions(
            &[index, first, ("docs/decisions/0001-b.md", "# 1. B\n")],
            &[
                "docs/decisions/0001-b.md: 0001-a.md has this number",
                "docs/decisions/0001-b.md: begins with something else than `# 0001: `",
                "docs/decisions/README.md: not one line `| [0001](0001-b.md) |`",
            ],
        );
        check_decisions(
            &[
                index,
                first,
                (
                    "a.rs",
                    "// decision 0001, `docs/decisions/0002-b.md`, decisions of 0003\n",
                ),
            ],
            &["a.rs: there is no decision 0002"],
        );
    }

    #[test]
    fn rows_and_changes_that_a_merge_doubled_are_found() {
        let table = "| a | first |\n|---|---|\n| b | one |\n| b | one, two |\n|  | more |\n|  | more |\n\n| b | another table |\n";
        let change = "- A pod whose state its node cannot decode runs on";
        let changes = format!("{change}.\n- Another.\n{change}, also across a restart.\n");
        let found = doubled(&texts(&[
            ("a.md", table),
            ("CHANGELOG.md", &changes),
            ("b.md", &changes),
        ]));
        let what = "begins as the one before it: a merge kept both";
        assert_eq!(
            found,
            [format!("CHANGELOG.md:3: {what}"), format!("a.md:4: {what}")]
        );
    }

    #[test]
    fn summary_has_every_page_once() {
        let summary = (
            SUMMARY,
            "- [A](a.md)\n- [D](decisions/README.md)\n- [R](r/README.md)\n- [R](r/README.md)\n",
        );
        let files = [
            summary,
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/c.service", ""),
            ("docs/decisions/README.md", ""),
            ("docs/decisions/0001-a.md", ""),
            ("docs/r/README.md", ""),
            ("README.md", ""),
            (FRONT, "[a](a.md) [b](b.md) [decisions](decisions/README.md)"),
        ];
        assert_eq!(
            super::summary(&texts(&files)),
            [
                "docs/SUMMARY.md: has not one line for docs/README.md, as `- [Title](README.md)`",
                "docs/SUMMARY.md: has not one line for docs/b.md, as `- [Title](b.md)`",
                "docs/SUMMARY.md: has not one line for docs/r/README.md, as `- [Title](r/README.md)`",
                "docs/README.md: no link leads to docs/r/README.md, as `[title](r/README.md)`",
            ]
        );
    }
}
