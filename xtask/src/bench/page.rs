//! The figures as tables, and their places in `docs/promises.md`.

use super::Figure;
use crate::config::Config;
use anyhow::{Context, Result};
use std::fs;

/// Lines of the page around a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableMarkers {
    begin: &'static str,
}

pub(super) const SERVERS: TableMarkers = TableMarkers {
    begin: "<!-- cargo xtask bench --write -->\n",
};
pub(super) const NODE: TableMarkers = TableMarkers {
    begin: "<!-- cargo xtask bench --only node --write -->\n",
};
const END: &str = "<!-- end -->\n";

/// The design's goals, by how a figure's name begins; the longest beginning counts.
const GOALS: [(&str, &str); 18] = [
    ("binary, stripped", "25 MB"),
    ("control plane, exec → /readyz, first start", "100 ms"),
    ("control plane, idle", "25 MB, 0.1 % of a core"),
    ("control plane, idle with", "140 MB"),
    ("create a 1.5 KB pod, 1 client", "p50 0.4 ms"),
    ("create a 1.5 KB pod, 64 clients", "70 µs CPU"),
    ("Deployment of 10000 pods", "4 s CPU"),
    ("resident with", "140 MB"),
    ("GET a pod", "25 µs CPU"),
    ("merge-patch a pod", "110 µs CPU"),
    ("LIST 10000 pods, identity", LIST_GOAL),
    ("LIST 10000 pods, gzip", LIST_GOAL),
    ("watch, ", "500,000 per CPU-second; 4 KB on a shared connection"),
    ("kill -9 → /readyz", "60 ms"),
    ("delete a collection", "1 s CPU"),
    ("exec → node Ready, containerd running", "500 ms"),
    ("idle, no pods", "server and agent 40 MB"),
    ("of it our own time, one after another", "p50 60 ms"),
];
const LIST_GOAL: &str = "1/10 of upstream's wall, 1/20 of its CPU, 2 MB extra";

fn goal(work: &str) -> &'static str {
    let promised = GOALS.iter().filter(|(begin, _)| work.starts_with(begin));
    promised
        .max_by_key(|(begin, _)| begin.len())
        .map_or("", |(_, goal)| goal)
}

/// Our figures, their goals, and the peer's where it has the same.
pub(super) fn beside(ours: &[Figure], theirs: &[Figure]) -> String {
    let mut out = String::from("| work | Knarr | goal | upstream, same run |\n|---|---|---|---|\n");
    for figure in ours {
        let peer = theirs
            .iter()
            .find(|other| other.work == figure.work)
            .map_or("–", |other| &other.figure);
        let goal = goal(&figure.work);
        out.push_str(&format!(
            "| {} | {} | {goal} | {peer} |\n",
            figure.work, figure.figure
        ));
    }
    out
}

/// Our figures and their goals.
pub(super) fn alone(ours: &[Figure]) -> String {
    let rows = ours.iter().map(|figure| {
        format!(
            "| {} | {} | {} |\n",
            figure.work,
            figure.figure,
            goal(&figure.work)
        )
    });
    format!(
        "| work | Knarr | goal |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

pub(super) fn write(config: &Config, markers: TableMarkers, table: &str) -> Result<()> {
    let path = config.root.join("docs/promises.md");
    let page = fs::read_to_string(&path)?;
    let begin = markers.begin;
    let (before, rest) = page
        .split_once(begin)
        .with_context(|| format!("docs/promises.md has lost its marker {begin}"))?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/promises.md has lost its end marker")?;
    Ok(fs::write(path, format!("{before}{begin}{table}{END}{after}"))?)
}
