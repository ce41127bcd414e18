//! The differences that are known, each with its reason. The list only shrinks: a case on it that passes is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Reads `case<TAB>reason` lines; a line that begins with `#` is a remark. A missing file is an empty list.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>> {
    if !path.try_exists()? {
        return Ok(BTreeMap::new());
    }
    fs::read_to_string(path)?
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (case, reason) = line
                .split_once('\t')
                .with_context(|| format!("no tab and reason in {line:?}"))?;
            Ok((case.to_owned(), reason.to_owned()))
        })
        .collect()
}
