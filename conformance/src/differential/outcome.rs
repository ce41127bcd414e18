//! Cases run on our server, their answers compared with those of upstream.

use anyhow::{Context, Result};
use futures::StreamExt;

use super::case::Case;
use super::compare;
use super::recording::Recordings;
use super::run::{Server, Transcript};

/// Number of cases that run at a time.
const CASES_AT_A_TIME: usize = 4;

/// Source of upstream's answers.
#[derive(Debug)]
pub enum Upstream {
    /// The files below `conformance/recordings`.
    Recorded(Recordings),
    /// A running kube-apiserver, recorded into memory.
    Live(Box<Server>),
}

/// The result of one case.
#[derive(Debug)]
pub struct Outcome {
    pub id: String,
    /// Readable lines; none when the two servers answered alike.
    pub differences: Vec<String>,
}

impl Upstream {
    async fn answers(&self, case: &Case) -> Result<Transcript> {
        match self {
            Self::Recorded(recordings) => recordings.answers(case).cloned(),
            Self::Live(server) => server.answers(case).await.context("upstream"),
        }
    }
}

/// Compares all cases and passes each outcome to `tell` as it comes; the result is sorted by id.
pub async fn compare_all(
    cases: &[&Case],
    upstream: &Upstream,
    ours: &Server,
    mut tell: impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(cases.len());
    let mut running = futures::stream::iter(cases.iter().copied())
        .map(|case| outcome(case, upstream, ours))
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some(outcome) = running.next().await {
        tell(&outcome);
        outcomes.push(outcome);
    }
    outcomes.sort_by(|a, b| a.id.cmp(&b.id));
    outcomes
}

/// Answers of one server to all cases, in the order in which they end.
pub async fn record_all(cases: &[&Case], server: &Server, mut tell: impl FnMut(&Case, Result<Transcript>)) {
    let mut running = futures::stream::iter(cases.iter().copied())
        .map(|case| async move { (case, server.answers(case).await) })
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some((case, answers)) = running.next().await {
        tell(case, answers);
    }
}

async fn outcome(case: &Case, upstream: &Upstream, ours: &Server) -> Outcome {
    let ours = async { ours.answers(case).await.context("ours") };
    let (upstream, ours) = futures::join!(upstream.answers(case), ours);
    let differences = match (upstream, ours) {
        (Ok(upstream), Ok(ours)) => differences(&upstream, &ours),
        (Err(problem), _) | (_, Err(problem)) => vec![format!("the case could not be compared: {problem:#}")],
    };
    Outcome {
        id: case.id.clone(),
        differences,
    }
}

/// Under a line for each step that is answered differently, one line for each difference.
fn differences(upstream: &Transcript, ours: &Transcript) -> Vec<String> {
    let mut lines = Vec::new();
    // Both took the steps of the same case: a recording of other steps is stale, and refused before.
    for (left, right) in upstream.0.iter().zip(&ours.0) {
        let found = compare::differences(&left.seen, &right.seen);
        if !found.is_empty() {
            lines.push(format!("step {}: {}", right.step, right.request));
            lines.extend(found.into_iter().map(|line| format!("    {line}")));
        }
    }
    lines
}
