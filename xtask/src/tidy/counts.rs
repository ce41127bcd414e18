//! Counts that may fall and may not grow. [`PAGE`] keeps them, one a line; `cargo xtask tidy --write` lowers those that have
//! fallen, `--list` prints what is counted.

use super::circles::{Circle, plain};
use super::{dialect, is_test};
use std::collections::BTreeMap;

/// The page of counts, from the root: a name and a number, with a tab between.
pub(super) const PAGE: &str = "xtask/src/tidy/counts.tsv";

/// Lines up to which a file is short; tests at its end do not count.
const SHORT: usize = 400;

/// Things that are counted, by the name of their count.
pub(super) type Found = [(&'static str, Vec<String>); 4];

/// Everything that is counted, as it is now.
pub(super) fn found(texts: &BTreeMap<String, String>, circles: &[Circle<'_>]) -> Found {
    let circle = |(folder, files): &Circle<'_>| format!("{folder}: a circle of {}", files.join(" "));
    let sources = texts
        .iter()
        .filter(|(name, _)| name.ends_with(".rs") && !is_test(name));
    let lines = sources.map(|(name, text)| (plain(text).lines().count(), name));
    let long = lines.filter(|(lines, _)| *lines > SHORT);
    [
        ("circles of imports", circles.iter().map(circle).collect()),
        (
            "files of more than 400 lines",
            long.map(|(lines, name)| format!("{name}: {lines} lines"))
                .collect(),
        ),
        ("comments with words of the dialect", dialect::comments(texts)),
        ("names with ask", dialect::names(texts)),
    ]
}

/// Counts that are higher than the page says, or that it lacks.
pub(super) fn grown(page: &str, found: &Found) -> Vec<String> {
    let grown = found.iter().filter_map(|(name, all)| {
        let may = kept(page, name)?;
        let why = format!(
            "{} {name}, of which {may} may be: see `cargo xtask tidy --list`",
            all.len()
        );
        (all.len() > may).then_some(why)
    });
    let missing = found.iter().filter(|(name, _)| kept(page, name).is_none());
    let missing = missing.map(|(name, _)| format!("no number of {name}"));
    grown.chain(missing).map(|why| format!("{PAGE}: {why}")).collect()
}

/// The page with what there is, where that is less.
pub(super) fn lowered(page: &str, found: &Found) -> String {
    let line = |(name, all): &(&str, Vec<String>)| {
        let number = kept(page, name).map_or(all.len(), |may| may.min(all.len()));
        format!("{name}\t{number}\n")
    };
    found.iter().map(line).collect()
}

fn kept(page: &str, name: &str) -> Option<usize> {
    let mut lines = page.lines().filter_map(|line| line.split_once('\t'));
    let (_, number) = lines.find(|(own, _)| *own == name)?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::circles;
    use super::*;

    /// Two circles, and two long files of which one is a test.
    fn sources() -> BTreeMap<String, String> {
        let long = "//\n".repeat(SHORT + 1);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n}}\n", "//\n".repeat(SHORT));
        let files = [
            ("a/src/lib.rs", ""),
            ("a/src/b.rs", "use crate::c;"),
            ("a/src/c.rs", "use crate::b;"),
            ("a/src/d.rs", "use crate::e;"),
            ("a/src/e.rs", "use crate::d;"),
            ("a/src/long.rs", &long),
            ("a/src/tested.rs", &tested),
            ("a/src/words.rs", "// It was asked.\nlet asked = 1;\n"),
            ("a/tests/long.rs", &long),
        ];
        files
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into()
    }

    #[track_caller]
    fn check(page: &str, problems: &[&str], lowered: &str) {
        let texts = sources();
        let found = found(&texts, &circles::all(&texts));
        assert_eq!(grown(page, &found), problems);
        assert_eq!(super::lowered(page, &found), lowered);
    }

    #[test]
    fn counts_fall_and_do_not_grow() {
        let page = |circles: usize, files: usize, comments: usize, names: usize| {
            format!(
                "circles of imports\t{circles}\nfiles of more than 400 lines\t{files}\n\
                 comments with words of the dialect\t{comments}\nnames with ask\t{names}\n"
            )
        };
        let now = page(2, 1, 1, 1);
        check(&now, &[], &now);
        check(&page(5, 3, 2, 2), &[], &now);
        let (circle, file) = (
            "xtask/src/tidy/counts.tsv: 2 circles of imports, of which 1 may be: see `cargo xtask tidy --list`",
            "xtask/src/tidy/counts.tsv: 1 files of more than 400 lines, of which 0 may be: see `cargo xtask tidy --list`",
        );
        let less = page(1, 0, 1, 1);
        check(&less, &[circle, file], &less);
        let missing = "xtask/src/tidy/counts.tsv: no number of circles of imports";
        let without = now.split_once('\n').expect("several lines").1;
        check(without, &[missing], &now);
        let words = [
            "xtask/src/tidy/counts.tsv: 1 comments with words of the dialect, of which 0 may be: see `cargo xtask tidy --list`",
            "xtask/src/tidy/counts.tsv: 1 names with ask, of which 0 may be: see `cargo xtask tidy --list`",
        ];
        check(&page(2, 1, 0, 0), &words, &page(2, 1, 0, 0));
    }
}
