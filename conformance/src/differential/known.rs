//! The differences that are known, each with its reason. The list only shrinks: an entry that nothing needs any more is
//! an error.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::outcome::Outcome;

/// Differences of one sort that are accepted, for now or for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Cases it is seen in; `*` stands for any text.
    pub case: String,
    /// Lines of difference it explains; `*` stands for any text.
    pub line: String,
    pub reason: String,
}

/// The result of a run against the list of known differences.
#[derive(Debug, Default)]
pub struct Judgement {
    pub passed: usize,
    /// Cases that differ, and only as the list says.
    pub known: usize,
    /// Cases with a difference that is not on the list.
    pub failed: usize,
    /// Entries that explain nothing of what was seen.
    pub stale: Vec<Known>,
}

impl Known {
    /// Reports whether this difference, seen in this case, is the one meant.
    #[must_use]
    pub fn explains(&self, case: &str, line: &str) -> bool {
        matches(&self.case, case) && matches(&self.line, line.trim())
    }
}

/// Reads `case<TAB>difference<TAB>reason` lines; a line that begins with `#` is a remark. A missing file is an empty
/// list.
pub fn read(path: &Path) -> Result<Vec<Known>> {
    if !path.try_exists()? {
        return Ok(Vec::new());
    }
    fs::read_to_string(path)?
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(parse)
        .collect()
}

fn parse(line: &str) -> Result<Known> {
    let mut parts = line.split('\t');
    let mut next = |what| {
        let part = parts.next().filter(|part| !part.is_empty());
        part.map(str::to_owned)
            .with_context(|| format!("no {what} in {line:?}"))
    };
    Ok(Known {
        case: next("case")?,
        line: next("difference")?,
        reason: next("reason")?,
    })
}

/// The differences of an outcome that no entry explains; the lines that name a step are none.
pub fn unexplained<'a>(outcome: &'a Outcome, known: &'a [Known]) -> impl Iterator<Item = &'a String> {
    let is_known = |line: &str| known.iter().any(|entry| entry.explains(&outcome.id, line));
    outcome
        .differences
        .iter()
        .filter(move |line| !is_step(line) && !is_known(line))
}

pub(super) fn is_step(line: &str) -> bool {
    line.starts_with("step ")
}

/// Sorts outcomes into passed, known and failed. Entries are stale only when their cases were run: of a `whole` run those
/// of several cases as well.
#[must_use]
pub fn judge(outcomes: &[Outcome], known: &[Known], whole: bool) -> Judgement {
    let mut judgement = Judgement::default();
    for outcome in outcomes {
        if outcome.differences.is_empty() {
            judgement.passed += 1;
        } else if unexplained(outcome, known).next().is_some() {
            judgement.failed += 1;
        } else {
            judgement.known += 1;
        }
    }
    let is_needed = |entry: &Known| {
        let seen = |outcome: &Outcome| {
            let mut lines = outcome.differences.iter().filter(|line| !is_step(line));
            lines.any(|line| entry.explains(&outcome.id, line))
        };
        let may_be_of_others = !whole && entry.case.contains('*');
        let was_run = !may_be_of_others && outcomes.iter().any(|outcome| matches(&entry.case, &outcome.id));
        !was_run || outcomes.iter().any(seen)
    };
    judgement.stale = known.iter().filter(|entry| !is_needed(entry)).cloned().collect();
    judgement
}

/// `*` in a pattern stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let cases = [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("*b*", "abc", true),
            ("*:create", "core/pod/full:create", true),
            ("*bb", "b", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn known_differences_listed_are_known_and_unseen_are_stale() {
        let entry = |case: &str, line: &str| Known {
            case: case.into(),
            line: line.into(),
            reason: "a reason".into(),
        };
        let outcome = |id: &str, lines: &[&str]| Outcome {
            id: id.into(),
            differences: lines.iter().map(|line| (*line).into()).collect(),
        };
        let outcomes = [
            outcome("a:one", &[]),
            outcome("a:two", &["step 1: GET /", "    body.x: upstream 1, ours 2"]),
            outcome(
                "a:three",
                &["step 1: GET /", "    body.x: upstream 1, ours 2", "    status: 1"],
            ),
        ];
        let known = [
            entry("a:*", "body.x:*"),
            entry("a:one", "status:*"),
            entry("not-run:*", "*"),
        ];
        let judgement = judge(&outcomes, &known, true);
        assert_eq!((judgement.passed, judgement.known, judgement.failed), (1, 1, 1));
        assert_eq!(judgement.stale, [known[1].clone()]);
        let elsewhere = [entry("*", "seen only in other cases")];
        assert_eq!(judge(&outcomes, &elsewhere, true).stale, elsewhere);
        assert_eq!(judge(&outcomes, &elsewhere, false).stale, []);
    }
}
