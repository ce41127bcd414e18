//! Cases whose answers by our server are compared with those of the real kube-apiserver.
//!
//! A [`case`] is a list of steps, read from `conformance/cases`; it runs in a namespace of its own ([`run`]). Each step's
//! answer goes through the [`mask`], which replaces what cannot be the same (times, uids, revisions, addresses from a range)
//! by placeholders, equal values by equal ones; then status code, headers and body must be equal ([`compare`],
//! [`outcome`]). Upstream's answers are read from `conformance/recordings` ([`recording`]), or come from a kube-apiserver
//! that runs beside ours. [`generated`] makes further cases from the facts of the kinds. [`known`] lists the cases that may differ, with the reason: it only shrinks. [`report`] says what
//! differs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::facts::Facts;
use case::Case;
use client::Client;
use generated::Group;
use generated::record::Records;
use known::Known;
use machinery_runtime::Runtime;
use outcome::{Outcome, Upstream};
use recording::Recordings;
use report::Report;
use run::Server;

pub mod case;
pub mod client;
pub mod compare;
pub mod generated;
pub mod known;
pub mod mask;
pub mod outcome;
pub mod recording;
pub(crate) mod repeats;
pub mod report;
pub mod run;
pub(crate) mod template;

/// The cases, and what is known of them.
#[derive(Debug)]
pub struct Suite {
    facts: Arc<Facts>,
    /// Chosen ones, sorted by id.
    pub cases: Vec<Case>,
    /// Generated ones with a chosen probe.
    groups: Vec<Group>,
    /// Ids of all groups.
    group_ids: BTreeSet<String>,
    /// Parts of ids that were chosen; none for all.
    only: Vec<String>,
    /// Ids of all that can be replayed, chosen or not.
    ids: BTreeSet<String>,
    /// All are chosen.
    whole: bool,
    /// `conformance/recordings`.
    folder: std::path::PathBuf,
    /// `conformance/generated`.
    generated: std::path::PathBuf,
}

impl Suite {
    /// Reads the cases below `root`, the folder of this crate, whose id contains one of `only`; all without.
    pub fn read(root: &Path, only: &[String]) -> Result<Self> {
        let facts = Facts::read(&root.join("../machinery/api/facts"))?;
        let mut cases = case::read_all(&root.join("cases"), &facts)?;
        let replayed = cases.iter().filter(|case| case.live_only.is_none());
        let ids = replayed.map(|case| case.id.clone()).collect();
        let mut groups = generated::read_all(&root.join("cases"), &facts)?;
        let group_ids = groups.iter().map(|group| group.case.id.clone()).collect();
        if !only.is_empty() {
            cases.retain(|case| is_chosen(only, &case.id));
            groups.retain(|group| group.compared().any(|probe| is_chosen(only, &group.id(probe))));
        }
        if cases.is_empty() && groups.is_empty() {
            bail!("no case has {} in its id", only.join(" or "));
        }
        Ok(Self {
            facts: Arc::new(facts),
            cases,
            groups,
            group_ids,
            only: only.to_owned(),
            ids,
            whole: only.is_empty(),
            folder: root.join("recordings"),
            generated: root.join("generated"),
        })
    }

    /// A running server that a kubeconfig leads to.
    pub async fn server(&self, kubeconfig: &Path) -> Result<Server> {
        let runtime = Runtime::real();
        Ok(Server {
            facts: Arc::clone(&self.facts),
            client: Client::new(kubeconfig, &runtime).await?,
            runtime,
        })
    }

    /// Compares our answers with the recorded ones; cases that need a running kube-apiserver are left out.
    pub async fn replay(
        &self,
        ours: &Server,
        known: Vec<Known>,
        tell: impl FnMut(&Outcome),
    ) -> Result<Report> {
        let records = Records::read(&self.generated)?;
        let waits = |group: &&Group| records.answers(group).is_ok_and(|answers| answers.is_none());
        let waiting = self.groups.iter().filter(waits);
        let unrecorded = waiting.map(|group| group.compared().count()).sum();
        let upstream = Upstream::Recorded(Recordings::read(&self.folder)?, records);
        let (cases, left_out) = self.replayed();
        let outcomes = self.compared(&cases, &upstream, ours, tell).await;
        Ok(Report::new(outcomes, known, left_out, self.whole).with_unrecorded(unrecorded))
    }

    /// Sends the chosen groups of generated cases and returns the number of their probes, and those whose answers have
    /// faults that show without upstream's.
    ///
    /// # Errors
    /// An answer that does not come.
    pub async fn faults(&self, ours: &Server) -> Result<(usize, Vec<Outcome>)> {
        outcome::faults_of_groups(&self.groups, ours).await
    }

    /// Compares our answers with those of a running kube-apiserver.
    pub async fn live(
        &self,
        upstream: Server,
        ours: &Server,
        known: Vec<Known>,
        tell: impl FnMut(&Outcome),
    ) -> Report {
        let cases: Vec<&Case> = self.cases.iter().collect();
        let upstream = Upstream::Live(Box::new(upstream));
        let outcomes = self.compared(&cases, &upstream, ours, tell).await;
        Report::new(outcomes, known, Vec::new(), self.whole)
    }

    /// Outcomes of cases, and of chosen probes of the groups.
    async fn compared(
        &self,
        cases: &[&Case],
        upstream: &Upstream,
        ours: &Server,
        mut tell: impl FnMut(&Outcome),
    ) -> Vec<Outcome> {
        let mut outcomes = outcome::compare_all(cases, upstream, ours, &mut tell).await;
        let chosen = |id: &str| self.only.is_empty() || is_chosen(&self.only, id);
        outcomes.extend(outcome::compare_groups(&self.groups, upstream, ours, chosen, tell).await);
        outcomes
    }

    /// Records the answers of a kube-apiserver to the chosen cases, and forgets cases that are gone. Returns how many were
    /// recorded.
    ///
    /// # Errors
    /// Cases that cannot be run; the others are recorded.
    pub async fn record(&self, upstream: &Server) -> Result<usize> {
        let version = upstream.version().await?;
        let (cases, _) = self.replayed();
        let mut recordings = Recordings::read(&self.folder)?;
        if recordings.version != version {
            recordings = Recordings::new(&version);
        }
        recordings.retain(|id| self.ids.contains(id));
        let (mut recorded, mut problems) = (0, Vec::new());
        outcome::record_all(&cases, upstream, |case, answers| {
            match answers.and_then(|answers| recordings.insert(case, answers)) {
                Ok(()) => recorded += 1,
                Err(problem) => problems.push(format!("{}: {problem:#}", case.id)),
            }
        })
        .await;
        recordings
            .write(&self.folder)
            .with_context(|| self.folder.display().to_string())?;
        let mut records = Records::read(&self.generated)?;
        if records.version != version {
            records = Records::new(&version);
        }
        records.retain(|id| self.group_ids.contains(id));
        outcome::record_groups(&self.groups, upstream, |group, answers| {
            match answers.and_then(|answers| records.insert(group, answers)) {
                Ok(()) => recorded += group.compared().count(),
                Err(problem) => problems.push(format!("{}: {problem:#}", group.case.id)),
            }
        })
        .await;
        records
            .write(&self.generated)
            .with_context(|| self.generated.display().to_string())?;
        if !problems.is_empty() {
            bail!(
                "{} cases are not recorded:\n{}",
                problems.len(),
                problems.join("\n")
            );
        }
        Ok(recorded)
    }

    /// Cases that can be replayed; id and reason of the others.
    fn replayed(&self) -> (Vec<&Case>, Vec<(String, String)>) {
        let mut replayed = Vec::new();
        let mut left_out = Vec::new();
        for case in &self.cases {
            match &case.live_only {
                None => replayed.push(case),
                Some(reason) => left_out.push((case.id.clone(), reason.clone())),
            }
        }
        (replayed, left_out)
    }
}

/// Reports whether an id has one of the chosen parts.
fn is_chosen(only: &[String], id: &str) -> bool {
    only.iter().any(|part| id.contains(part))
}
