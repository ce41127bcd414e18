//! `conformance/missing.tsv`: features that are known to be missing, with the specs that need them.

use crate::config::Config;
use anyhow::{Context, Result, bail};

/// One line a feature: its name, a tab, a regular expression of specs.
pub(super) const LIST: &str = "conformance/missing.tsv";

/// Regular expressions of the specs to leave out.
pub(super) fn patterns(config: &Config) -> Result<Vec<String>> {
    let list = std::fs::read_to_string(config.root.join(LIST)).context(LIST)?;
    read(&list)
}

fn read(list: &str) -> Result<Vec<String>> {
    let mut patterns = Vec::new();
    for line in list.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('\t') {
            Some((_, pattern)) if !pattern.is_empty() => patterns.push(pattern.to_owned()),
            _ => bail!("{LIST}: no regular expression in {line:?}"),
        }
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_lines_of_a_name_and_an_expression() {
        let list = "# feature\texpression\nwebhooks\tAdmissionWebhook|Conversion\n\n";
        assert_eq!(read(list).expect("read"), ["AdmissionWebhook|Conversion"]);
        // An empty expression would leave out every spec.
        assert!(read("webhooks\t\n").is_err());
        assert!(read("webhooks\n").is_err());
    }
}
