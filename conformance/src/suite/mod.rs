//! Results of upstream's conformance suite.
//!
//! ginkgo writes a junit report; [`record`] merges it into `conformance/results.tsv`, one line per spec: its name, the
//! result, seconds, and what is missing where it fails. A spec that is recorded as passed may not fail later.

mod junit;
mod left_out;
mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use left_out::left_out;

/// Reports of one or more runs; of a spec that ran several times the last run counts.
#[derive(Debug, Default)]
pub struct Reports {
    ran: BTreeMap<String, junit::Spec>,
    /// Names of specs that ran in no run.
    skipped: BTreeSet<String>,
}

impl Reports {
    /// Reads them in the order of the runs.
    ///
    /// # Errors
    /// A file cannot be read or is no report.
    pub fn read(reports: &[PathBuf]) -> Result<Self> {
        let mut all = Self::default();
        for path in reports {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            all.add(junit::read(&text).with_context(|| path.display().to_string())?);
        }
        Ok(all)
    }

    fn add(&mut self, report: junit::Report) {
        let named = report.ran.into_iter().map(|spec| (spec.name.clone(), spec));
        self.ran.extend(named);
        self.skipped.extend(report.skipped);
        self.skipped.retain(|name| !self.ran.contains_key(name));
    }

    /// Names of specs that have failed.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self.ran.values().filter(|spec| !spec.passed);
        failed.map(|spec| spec.name.as_str())
    }
}

/// Merges reports into the results; an error when a spec that passed before failed now.
pub fn record(reports: &Reports, results: &Path, dry_run: bool) -> Result<()> {
    let mut table = results::Table::read(results)?;
    let merged = table.merge(reports.ran.values());
    for name in &merged.failed {
        println_line(&format!("failed: {name}"));
    }
    println_line(&format!(
        "{} passed, {} failed, {} of them passed before",
        merged.passed,
        merged.failed.len(),
        merged.regressed.len()
    ));
    if !dry_run {
        table.write(results)?;
    }
    if !merged.regressed.is_empty() {
        bail!(
            "passed before and failed now:\n  {}",
            merged.regressed.join("\n  ")
        );
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report of a command")]
fn println_line(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(names: &[(&str, bool)], skipped: &[&str]) -> junit::Report {
        let spec = |(name, passed): &(&str, bool)| junit::Spec {
            name: (*name).to_owned(),
            passed: *passed,
            seconds: 1.0,
            message: String::new(),
        };
        junit::Report {
            ran: names.iter().map(spec).collect(),
            skipped: skipped.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn suite_run_again_counts_for_a_spec_that_failed_before() {
        let mut reports = Reports::default();
        reports.add(report(&[("a", false), ("b", false), ("c", true)], &["d", "e"]));
        assert_eq!(reports.failed().collect::<Vec<_>>(), ["a", "b"]);
        reports.add(report(&[("a", true), ("b", false), ("d", true)], &["c", "e"]));
        assert_eq!(reports.failed().collect::<Vec<_>>(), ["b"]);
        // What ran once is not left out by the run that chose others.
        assert_eq!(reports.skipped.iter().collect::<Vec<_>>(), ["e"]);
    }
}
