//! `conformance/mutations.tsv`: the last outcome of each mutation, with the commit and the day, written as each ends.

use super::{Outcome, mutations};
use crate::config::Config;
use crate::process;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Relative to the repository.
const LEDGER: &str = "conformance/mutations.tsv";
const HEAD: &str = "name\toutcome\tcommit\tdate";

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    outcome: String,
    commit: String,
    date: String,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    commit: String,
    date: String,
    entries: BTreeMap<String, Entry>,
}

impl Ledger {
    pub(super) fn read(config: &Config) -> Result<Self> {
        let path = config.root.join(LEDGER);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(LEDGER),
        };
        let mut git = process::command("git");
        git.current_dir(&config.root)
            .args(["rev-parse", "--short", "HEAD"]);
        Ok(Self {
            path,
            commit: process::output(&mut git)?.trim().to_owned(),
            date: process::output(process::command("date").args(["-u", "+%F"]))?
                .trim()
                .to_owned(),
            entries: entries(&text).into_iter().collect(),
        })
    }

    /// The day of a mutation's last run; none where it was not noticed then, which comes first.
    pub(super) fn noticed_on(&self, name: &str) -> Option<&str> {
        let entry = self.entries.get(name)?;
        let is_noticed = Outcome::of_word(&entry.outcome).is_some_and(Outcome::is_noticed);
        is_noticed.then_some(&entry.date)
    }

    /// Writes the outcome down. Lines of mutations that are no more go.
    pub(super) fn note(&mut self, name: &str, outcome: Outcome) -> Result<()> {
        let entry = Entry {
            outcome: outcome.word().to_owned(),
            commit: self.commit.clone(),
            date: self.date.clone(),
        };
        self.entries.insert(name.to_owned(), entry);
        let unfinished = self.path.with_extension("tsv.tmp");
        fs::write(&unfinished, self.text()).context(LEDGER)?;
        fs::rename(&unfinished, &self.path).context(LEDGER)
    }

    /// The file, in the order of the table.
    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (_, mutation) in mutations() {
            if let Some(entry) = self.entries.get(mutation.name) {
                let Entry {
                    outcome,
                    commit,
                    date,
                } = entry;
                text += &format!("{}\t{outcome}\t{commit}\t{date}\n", mutation.name);
            }
        }
        text
    }
}

fn entries(text: &str) -> Vec<(String, Entry)> {
    let lines = text.lines().skip(1).filter_map(|line| {
        let mut cells = line.split('\t').map(str::to_owned);
        let name = cells.next()?;
        let entry = Entry {
            outcome: cells.next()?,
            commit: cells.next()?,
            date: cells.next()?,
        };
        Some((name, entry))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that survives needs an assertion, one that is unusable another line; both before the ledger is committed.
    #[test]
    fn mutations_of_the_ledger_exist_and_were_noticed() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = fs::read_to_string(root.join(LEDGER)).unwrap();
        assert_eq!(text.lines().next(), Some(HEAD));
        let all = entries(&text);
        assert_eq!(all.len(), text.lines().count() - 1, "lines that are no entries");
        let bad: Vec<&str> = all
            .iter()
            .filter(|(name, entry)| {
                let is_known = mutations().any(|(_, own)| own.name == name);
                let outcome = Outcome::of_word(&entry.outcome);
                !is_known || !outcome.is_some_and(Outcome::is_noticed)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(bad, [""; 0]);
        let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one != next), "names twice");
    }

    #[test]
    fn ledger_is_written_as_each_ends_and_read_again() {
        let path = std::env::temp_dir().join(format!("knarr-ledger.{}.tsv", std::process::id()));
        let [first, second] = [0, 1].map(|at| mutations().nth(at).unwrap().1.name);
        let old = |outcome: &str| Entry {
            outcome: outcome.to_owned(),
            commit: "c".to_owned(),
            date: "2026-01-01".to_owned(),
        };
        let mut ledger = Ledger {
            path: path.clone(),
            commit: "d".to_owned(),
            date: "2026-02-02".to_owned(),
            entries: BTreeMap::from([
                ("no more".to_owned(), old("noticed")),
                (second.to_owned(), old("SURVIVED")),
            ]),
        };
        assert_eq!(ledger.noticed_on(second), None);
        ledger.note(first, Outcome::Hung).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            HEAD.to_owned(),
            format!("{first}\tnoticed (the proof hangs)\td\t2026-02-02"),
            format!("{second}\tSURVIVED\tc\t2026-01-01"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(entries(&text).len(), 2);
        assert_eq!(ledger.noticed_on(first), Some("2026-02-02"));
        fs::remove_file(path).unwrap();
    }
}
