//! The answers of the real kube-apiserver as data, and comparing with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Answers by the request's id.
pub type Answers = BTreeMap<String, String>;

/// Reads a file of `id`, tab, answer; lines that begin with `#` are comments.
pub fn read(path: &Path) -> Result<Answers> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (id, answer) = line
                .split_once('\t')
                .with_context(|| format!("{line:?} has no tab"))?;
            Ok((id.to_owned(), answer.to_owned()))
        })
        .collect()
}

/// Writes a user's answers.
pub fn write(path: &Path, answers: &[(String, String)]) -> Result<()> {
    let sorted: BTreeMap<_, _> = answers.iter().map(|(id, answer)| (id, answer)).collect();
    let mut text =
        String::from("# What kube-apiserver v1.37.1 answers; written by `cargo xtask tenants --record`.\n");
    for (id, answer) in sorted {
        writeln!(text, "{id}\t{answer}")?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Readable lines about each request that is answered otherwise than recorded; `known` ones are left out. A known
/// difference that is none any more is a line as well, so that the list only shrinks, and so is a recorded or known request that is
/// not sent any more, so that no request gets lost.
#[must_use]
pub fn differences(
    user: &str,
    recorded: &Answers,
    answers: &[(String, String)],
    known: &Answers,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, answer) in answers {
        let expected = recorded.get(id).map_or("not recorded", String::as_str);
        let excused = known.contains_key(&format!("{user} {id}"));
        match (expected == answer, excused) {
            (false, false) => lines.push(format!(
                "{user}: {id}\n    upstream: {expected}\n    ours:     {answer}"
            )),
            (true, true) => lines.push(format!("{user}: {id} differs no more; remove it from known.tsv")),
            _ => {}
        }
    }
    let sent: BTreeSet<&str> = answers.iter().map(|(id, _)| id.as_str()).collect();
    let prefix = format!("{user} ");
    let of_user = known.keys().filter_map(|id| id.strip_prefix(&prefix));
    for (ids, file) in [
        (recorded.keys().map(String::as_str).collect(), "the recording"),
        (of_user.collect::<Vec<_>>(), "known.tsv"),
    ] {
        let gone = ids.into_iter().filter(|id| !sent.contains(id));
        lines.extend(gone.map(|id| format!("{user}: {id} is in {file} and is not sent")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(rows: &[(&str, &str)]) -> Vec<(String, String)> {
        rows.iter()
            .map(|(id, answer)| ((*id).to_owned(), (*answer).to_owned()))
            .collect()
    }

    #[test]
    fn differences_name_requests_that_are_sent_no_more() {
        let recorded = answers(&[("GET /a", "200"), ("GET /b", "200"), ("GET /c", "403")]);
        let recorded: Answers = recorded.into_iter().collect();
        let known = answers(&[
            ("anna GET /c", "why"),
            ("anna GET /d", "why"),
            ("bob GET /e", "why"),
        ]);
        let known: Answers = known.into_iter().collect();
        let sent = answers(&[("GET /a", "200"), ("GET /c", "200")]);
        assert_eq!(
            differences("anna", &recorded, &sent, &known),
            [
                "anna: GET /b is in the recording and is not sent",
                "anna: GET /d is in known.tsv and is not sent",
            ]
        );
    }
}
