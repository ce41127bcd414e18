//! `conformance/results.tsv`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::junit::Spec;

const HEAD: &str = "spec\tresult\tseconds\tmissing";

/// Most characters of a cell, so that it fits a line; the report has the rest.
const MAX_MISSING: usize = 240;

/// Beginning of a cell written by a person, with what is missing; a spec that fails again keeps it.
const WRITTEN: &str = "not built: ";

/// All specs that were ever run, by name.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<String, Row>);

#[derive(Debug)]
struct Row {
    passed: bool,
    seconds: String,
    missing: String,
}

/// Result of merging.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub passed: usize,
    pub failed: Vec<String>,
    pub regressed: Vec<String>,
}

impl Table {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut table = Self::default();
        if !path.try_exists()? {
            return Ok(table);
        }
        for line in std::fs::read_to_string(path)?.lines().skip(1) {
            let mut cells = line.split('\t');
            let mut cell = || cells.next().with_context(|| format!("cells in {line:?}"));
            let name = cell()?.to_owned();
            let row = Row {
                passed: cell()? == "pass",
                seconds: cell()?.to_owned(),
                missing: cell().unwrap_or_default().to_owned(),
            };
            table.0.insert(name, row);
        }
        Ok(table)
    }

    /// A spec that passed and now fails keeps its line: the line is the obligation.
    pub(super) fn merge<'a>(&mut self, specs: impl IntoIterator<Item = &'a Spec>) -> Merged {
        let mut merged = Merged::default();
        for spec in specs {
            let before = self.0.get(&spec.name);
            let passed_before = before.is_some_and(|row| row.passed);
            let written = before
                .filter(|row| !spec.passed && row.missing.starts_with(WRITTEN))
                .map(|row| row.missing.clone());
            if spec.passed {
                merged.passed += 1;
            } else {
                merged.failed.push(spec.name.clone());
                if passed_before {
                    merged.regressed.push(spec.name.clone());
                    continue;
                }
            }
            let row = Row {
                passed: spec.passed,
                seconds: format!("{:.1}", spec.seconds),
                missing: written.unwrap_or_else(|| in_a_line(&spec.message)),
            };
            self.0.insert(spec.name.clone(), row);
        }
        merged
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = format!("{HEAD}\n");
        for (name, row) in &self.0 {
            let result = if row.passed { "pass" } else { "fail" };
            writeln!(text, "{name}\t{result}\t{}\t{}", row.seconds, row.missing)?;
        }
        Ok(std::fs::write(path, text)?)
    }
}

fn in_a_line(message: &str) -> String {
    message.replace('\t', " ").chars().take(MAX_MISSING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Spec {
        Spec {
            name: name.to_owned(),
            passed: false,
            seconds: 2.0,
            message: "it\ttimed out".to_owned(),
        }
    }

    #[test]
    fn suite_results_keep_promises_and_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.tsv");
        let rows = "a\tpass\t1.0\t\nb\tfail\t\tnot built: quotas\nc\tfail\t1.0\tolder\n";
        std::fs::write(&path, format!("{HEAD}\n{rows}")).unwrap();
        let mut table = Table::read(&path).unwrap();
        let merged = table.merge(&["a", "b", "c"].map(failed));
        assert_eq!(merged.regressed, ["a"]);
        table.write(&path).unwrap();
        let rows = "a\tpass\t1.0\t\nb\tfail\t2.0\tnot built: quotas\nc\tfail\t2.0\tit timed out\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEAD}\n{rows}"));
    }
}
