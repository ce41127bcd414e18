//! Cases run on our server, their answers compared with those of upstream.

use anyhow::{Context, Result};
use futures::StreamExt;

use super::case::Case;
use super::compare;
use super::generated::record::{Records, is_compared};
use super::generated::run::Answers;
use super::generated::{Group, answer};
use super::recording::Recordings;
use super::run::{Server, Transcript};

/// Number of cases that run at a time.
const CASES_AT_A_TIME: usize = 4;

/// Times that a probe is sent to be recorded: answers that depend on the order of Go's maps show by that.
const RECORDED_TIMES: usize = 3;

/// Source of upstream's answers.
#[derive(Debug)]
pub(super) enum Upstream {
    /// The files below `conformance/recordings` and `conformance/generated`.
    Recorded(Recordings, Records),
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
            Self::Recorded(recordings, _) => recordings.answers(case).cloned(),
            Self::Live(server) => server.answers(case).await.context("upstream"),
        }
    }

    async fn probes(&self, group: &Group) -> Result<Option<Answers>> {
        match self {
            Self::Recorded(_, records) => Ok(records.answers(group)?.cloned()),
            Self::Live(server) => server.probe(group, 1).await.map(Some).context("upstream"),
        }
    }
}

/// Compares all cases and passes each outcome to `tell` as it comes; the result is sorted by id.
pub(super) async fn compare_all(
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
pub(super) async fn record_all(
    cases: &[&Case],
    server: &Server,
    mut tell: impl FnMut(&Case, Result<Transcript>),
) {
    let mut running = futures::stream::iter(cases.iter().copied())
        .map(|case| async move { (case, server.answers(case).await) })
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some((case, answers)) = running.next().await {
        tell(case, answers);
    }
}

/// Compares the probes that `chosen` accepts, one outcome each; the result is sorted by id.
pub(super) async fn compare_groups(
    groups: &[Group],
    upstream: &Upstream,
    ours: &Server,
    chosen: impl Fn(&str) -> bool,
    mut tell: impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut running = futures::stream::iter(groups)
        .map(|group| probed(group, upstream, ours))
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some(of_group) = running.next().await {
        for outcome in of_group.into_iter().filter(|outcome| chosen(&outcome.id)) {
            tell(&outcome);
            outcomes.push(outcome);
        }
    }
    outcomes.sort_by(|a, b| a.id.cmp(&b.id));
    outcomes
}

/// Answers of one server to all groups, in the order in which they end.
pub(super) async fn record_groups(
    groups: &[Group],
    server: &Server,
    mut tell: impl FnMut(&Group, Result<Answers>),
) {
    let mut running = futures::stream::iter(groups)
        .map(|group| async move {
            let answers = server.probe(group, RECORDED_TIMES).await;
            (group, answers)
        })
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some((group, answers)) = running.next().await {
        tell(group, answers);
    }
}

/// Outcomes of a group's probes; none where upstream's answers are not recorded yet.
async fn probed(group: &Group, upstream: &Upstream, ours: &Server) -> Vec<Outcome> {
    let answers = async {
        let Some(upstream) = upstream.probes(group).await? else {
            return Ok(None);
        };
        let ours = ours.probe(group, 1).await.context("ours")?;
        anyhow::Ok(Some((upstream, ours)))
    };
    let outcome = |id: String, differences| Outcome { id, differences };
    let (upstream, ours) = match answers.await {
        Ok(Some(answers)) => answers,
        Ok(None) => return Vec::new(),
        Err(problem) => {
            let line = format!("the group could not be compared: {problem:#}");
            return vec![outcome(group.case.id.clone(), vec![line])];
        }
    };
    // Both have the probes of the same group: a recording of others is stale, and refused before.
    let pairs = group.compared().zip(upstream.0.iter().zip(&ours.0));
    pairs
        .filter(|(_, ((_, upstream), _))| is_compared(upstream))
        .map(|(probe, ((_, upstream), (_, ours)))| {
            let mut lines = compare::differences(&answer::seen(upstream), &answer::seen(ours));
            if !lines.is_empty() {
                lines.insert(0, format!("step 1: {}", probe.step.request));
            }
            outcome(group.id(probe), lines)
        })
        .collect()
}

/// The number of all probes, and those whose answers have faults of their own.
pub(super) async fn faults_of_groups(groups: &[Group], ours: &Server) -> Result<(usize, Vec<Outcome>)> {
    let (mut count, mut faulty) = (0, Vec::new());
    let mut running = futures::stream::iter(groups)
        .map(|group| async move { (group, ours.probe(group, 1).await) })
        .buffer_unordered(CASES_AT_A_TIME);
    while let Some((group, answers)) = running.next().await {
        for (probe, (name, answer)) in group.compared().zip(answers?.0) {
            count += 1;
            let differences = answer::faults(&name, &answer);
            if !differences.is_empty() {
                let id = group.id(probe);
                faulty.push(Outcome { id, differences });
            }
        }
    }
    faulty.sort_by(|a, b| a.id.cmp(&b.id));
    Ok((count, faulty))
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
