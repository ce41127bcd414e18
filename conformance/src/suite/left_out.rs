//! Specs of the label Conformance that did not run, by the feature that they wait for.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use regex_automata::meta::Regex;

use super::Reports;

/// Part of the name of every spec that conformance requests.
const LABEL: &str = "[Conformance]";

/// A line that counts them; `missing` is a list of features, each with the expression of its specs.
///
/// # Errors
/// The list cannot be read, or an expression is none.
pub fn left_out(reports: &Reports, missing: &Path) -> Result<String> {
    let list = std::fs::read_to_string(missing).with_context(|| missing.display().to_string())?;
    Ok(count(
        &features(&list)?,
        reports.skipped.iter().map(String::as_str),
    ))
}

fn features(list: &str) -> Result<Vec<(&str, Regex)>> {
    let lines = list
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (feature, expression) = line
                .split_once('\t')
                .with_context(|| format!("no tab in {line:?}"))?;
            let expression =
                Regex::new(expression).with_context(|| format!("the expression of {feature}"))?;
            Ok((feature, expression))
        })
        .collect()
}

fn count<'a>(features: &[(&str, Regex)], skipped: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for name in skipped.filter(|name| name.contains(LABEL)) {
        let feature = features.iter().find(|(_, expression)| expression.is_match(name));
        *counts
            .entry(feature.map_or("not chosen", |(feature, _)| feature))
            .or_default() += 1;
        all += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(feature, count)| format!("{count} {feature}"))
        .collect();
    format!("{all} left out: {}", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_counts_what_is_left_out_by_feature() {
        let list = "# feature\texpression\nwebhooks\tWebhook\nimage volumes\tImageVolume\n";
        let skipped = [
            "a Webhook x [Conformance]",
            "Webhook [Conformance]",
            "Webhook",
            "Job [Conformance]",
        ];
        let line = count(&features(list).unwrap(), skipped.into_iter());
        assert_eq!(line, "3 left out: 1 not chosen, 2 webhooks");
        assert!(features("webhooks\t(").is_err());
    }

    #[test]
    fn suite_list_of_missing_features_is_readable() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let list = std::fs::read_to_string(folder.join("missing.tsv")).unwrap();
        features(&list).unwrap();
    }
}
