//! Results of upstream's conformance suite.
//!
//! ginkgo writes a junit report; [`record`] merges it into `conformance/results.tsv`, one line per spec: its name, the
//! result, seconds, and what is missing where it fails. A spec that is recorded as passed may not fail later.

mod junit;
mod results;

use std::path::Path;

use anyhow::{Result, bail};

/// Merges a report into the results; an error when a spec that passed before failed now.
pub fn record(report: &Path, results: &Path, dry_run: bool) -> Result<()> {
    let specs = junit::read(&std::fs::read_to_string(report)?)?;
    let mut table = results::Table::read(results)?;
    let merged = table.merge(&specs);
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
