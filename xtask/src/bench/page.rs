//! The figures as tables, and their places in `docs/performance.md`.

use super::Figure;
use crate::config::Config;
use anyhow::{Context, Result};
use std::fs;

/// Between which two lines of the page a table stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    begin: &'static str,
}

pub(super) const SERVERS: Place = Place {
    begin: "<!-- cargo xtask bench --write -->\n",
};
pub(super) const NODE: Place = Place {
    begin: "<!-- cargo xtask bench --only node --write -->\n",
};
const END: &str = "<!-- end -->\n";

/// Our figures and the peer's where it has the same.
pub(super) fn beside(ours: &[Figure], theirs: &[Figure]) -> String {
    let mut out = String::from("| work | Knarr | upstream, same run |\n|---|---|---|\n");
    for figure in ours {
        let peer = theirs
            .iter()
            .find(|other| other.work == figure.work)
            .map_or("–", |other| &other.figure);
        out.push_str(&format!("| {} | {} | {peer} |\n", figure.work, figure.figure));
    }
    out
}

/// Our figures alone.
pub(super) fn alone(ours: &[Figure]) -> String {
    let rows = ours
        .iter()
        .map(|figure| format!("| {} | {} |\n", figure.work, figure.figure));
    format!("| work | Knarr |\n|---|---|\n{}", rows.collect::<String>())
}

pub(super) fn write(config: &Config, place: Place, table: &str) -> Result<()> {
    let path = config.root.join("docs/performance.md");
    let page = fs::read_to_string(&path)?;
    let begin = place.begin;
    let (before, rest) = page
        .split_once(begin)
        .with_context(|| format!("docs/performance.md has lost its marker {begin}"))?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/performance.md has lost its end marker")?;
    Ok(fs::write(path, format!("{before}{begin}{table}{END}{after}"))?)
}
