//! One scheduling cycle: from a pod and the nodes to a node, or to the reasons why none will do.

mod nominations;
mod overlay;
mod scoring;

pub use nominations::Nominations;

use crate::attempt::Attempt;
use crate::diagnosis::Diagnosis;
use crate::evaluation::{Evaluations, Failure};
use crate::extender::Verdict;
use crate::framework::{Cycle, Filter, NodeNames, Plugin, PluginRegistration, PluginSet, Rejection, Scope};
use crate::meter::{ExtensionPoint, Meter, SUCCESS};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
use crate::policy::{Nodes, Policy, Ranking};
use crate::search::Search;
use overlay::{Overlay, diagnose, feasible};
use scoring::{add_scores, pick, scores};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The pod fits nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitError {
    /// There is no node at all.
    NoNodes,
    /// Every node was rejected; on `resolvable` ones it may help to preempt.
    Unfit {
        diagnosis: Box<Diagnosis>,
        resolvable: Vec<NodeId>,
    },
}

impl FitError {
    /// Upstream's words.
    pub fn message(&self) -> String {
        match self {
            Self::NoNodes => "no nodes available to schedule pods".to_owned(),
            Self::Unfit { diagnosis, .. } => diagnosis.message(),
        }
    }
}

/// End of a cycle in which nodes fit.
#[derive(Debug)]
pub(crate) enum Placement {
    On(NodeId),
    /// The node that is nominated for the pod, where it fits, and all that do: extenders are to be asked about them.
    Ask(Option<NodeId>, Vec<NodeId>),
}

/// The part of extenders in a cycle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extenders<'a> {
    /// None is interested in the pod.
    Absent,
    /// They are to be asked.
    Unasked,
    Asked(&'a Verdict),
}

/// The plugins of one profile and what they answered so far.
#[derive(Debug)]
pub struct Algorithm {
    plugins: PluginSet,
    /// Plugins that make counters and columns.
    preparing: Vec<Arc<dyn Plugin>>,
    evaluations: Evaluations,
    ranking: Ranking,
    search: Search,
    /// One node that fits is as good as another.
    takes_the_first: bool,
    /// The moment of the attempt: usage is of some moment too.
    now: Duration,
}

impl Algorithm {
    pub fn new(plugins: PluginSet) -> Self {
        Self {
            preparing: plugins.preparing(),
            takes_the_first: plugins.score.is_empty(),
            plugins,
            evaluations: Evaluations::default(),
            ranking: Ranking::default(),
            search: Search::default(),
            now: Duration::ZERO,
        }
    }

    /// The same with another share of nodes that is looked at; where extenders compare nodes, one is not enough.
    #[must_use]
    pub(crate) fn searching(self, percentage: usize, extenders_compare: bool) -> Self {
        Self {
            search: Search::new(percentage),
            takes_the_first: self.takes_the_first && !extenders_compare,
            ..self
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.ranking.set(policy);
    }

    pub(crate) fn policy(&self) -> Policy {
        self.ranking.policy()
    }

    /// The moment of the attempts from now on.
    pub(crate) fn set_now(&mut self, now: Duration) {
        self.now = now;
    }

    #[cfg(test)]
    pub(crate) fn evaluations(&self) -> &Evaluations {
        &self.evaluations
    }

    pub fn plugins(&self) -> &PluginSet {
        &self.plugins
    }

    /// The best node; `random` decides among equals.
    pub fn place(
        &mut self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        nominations: &Nominations,
        random: u64,
    ) -> Result<NodeId, FitError> {
        match self.place_with(attempt, nodes, nominations, random, Extenders::Absent)? {
            Placement::On(node) => Ok(node),
            Placement::Ask(_, fitting) => Ok(fitting[0]),
        }
    }

    /// The same where extenders have a say.
    pub(crate) fn place_with(
        &mut self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        nominations: &Nominations,
        random: u64,
        extenders: Extenders<'_>,
    ) -> Result<Placement, FitError> {
        nodes.trim();
        if nodes.node_count() == 0 {
            return Err(FitError::NoNodes);
        }
        let (allowed, naming) = self.prepare(attempt, nodes)?;
        let begun = began(attempt);
        let promised = self.nominated(attempt, nodes, nominations);
        nodes.order_by_zone();
        let nodes = &*nodes;
        let cycle = attempt.on(nodes);
        let among = allowed.as_ref().map_or(nodes.node_count(), |names| names.len());
        let wanted = match self.takes_the_first {
            true => 1,
            false => self.search.wanted(among),
        };
        let allowed = allowed.as_ref().map(|names| (names, &naming[..]));
        let answers = self.evaluations.of(&self.plugins, cycle, allowed);
        let verdict = match extenders {
            Extenders::Asked(verdict) => Some(verdict),
            Extenders::Absent | Extenders::Unasked => None,
        };
        let filters = Overlay {
            promised,
            filters: cluster_filters(&self.plugins.filter, cycle),
            verdict: verdict.map(|verdict| (verdict, nodes)),
        };
        // The node where room was made for it, or that another component chose, where it fits (upstream's
        // `evaluateNominatedNode`).
        let pod = attempt.pod();
        let decided = nominations
            .node_of(pod)
            .unwrap_or(&pod.pod.status.nominated_node_name);
        let nominated = nodes.id(decided);
        let nominated = nominated.filter(|node| filters.fits(&answers, *node));
        let all = wanted >= among || verdict.is_some() || self.ranking.policy() != Policy::Default;
        let feasible = match (all, nominated, extenders) {
            (_, Some(node), Extenders::Absent | Extenders::Asked(_)) => vec![node],
            (true, ..) => feasible(&answers.complete(), &filters),
            (false, ..) => {
                let fits = |node| filters.fits(&answers, node);
                self.search.first(nodes.search_order(), wanted, fits)
            }
        };
        ran(attempt, ExtensionPoint::Filter, SUCCESS, begun);
        if feasible.is_empty() {
            return Err(diagnose(&answers.complete(), &filters, nodes));
        }
        sample(&self.plugins, cycle, feasible[0]);
        if matches!(extenders, Extenders::Unasked) {
            return Ok(Placement::Ask(nominated, feasible));
        }
        if let Some(node) = nominated {
            return Ok(Placement::On(node));
        }
        let ranked = Nodes {
            table: nodes,
            shape: &attempt.pod().shape,
            feasible: &feasible,
            now: self.now,
        };
        let best = self.ranking.best(ranked, random).unwrap_or(feasible);
        if let [only] = best[..] {
            return Ok(Placement::On(only));
        }
        let begun = began(attempt);
        let mut totals = scores(&self.plugins.score, &answers.known(), cycle, &best);
        if let Some(verdict) = verdict {
            add_scores(&mut totals, verdict, nodes, &best);
        }
        ran(attempt, ExtensionPoint::Score, SUCCESS, begun);
        Ok(Placement::On(best[pick(&totals, random)]))
    }

    /// Reads the nodes that the pod names, and has the plugins make what they read.
    fn prepare(
        &self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
    ) -> Result<(NodeNames, Vec<&'static str>), FitError> {
        let begun = began(attempt);
        let named = self.named_nodes(attempt.on(nodes));
        if named.is_ok() {
            for plugin in &self.preparing {
                plugin.prepare(attempt, nodes);
            }
        }
        let status = named
            .as_ref()
            .err()
            .map_or(SUCCESS, |(_, rejection)| rejection.status());
        ran(attempt, ExtensionPoint::PreFilter, status, begun);
        named.map_err(|(plugin, rejection)| refused(plugin, &rejection, nodes))
    }

    /// Reports whether the pod would fit the node as it is now, for the dry run of preemption.
    pub fn check(
        &self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        node: NodeId,
        nominations: &Nominations,
    ) -> Option<Failure> {
        let promised = nominations.respected(attempt.pod(), &nodes.names[node]);
        if !promised.is_empty()
            && let Some(failure) = self.check_with(attempt, nodes, node, &promised)
        {
            return Some(failure);
        }
        self.check_with(attempt, nodes, node, &[])
    }

    fn check_with(
        &self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        node: NodeId,
        promised: &[Arc<PodInfo>],
    ) -> Option<Failure> {
        for one in promised {
            nodes.add_to_row(node, one);
        }
        let cycle = attempt.on(nodes);
        let failure = self.plugins.filter.iter().find_map(|row| {
            let rejection = filter_of(row, cycle)?.check(node).err()?;
            Some(Failure {
                plugin: row.name(),
                rejection,
            })
        });
        for _ in promised {
            let last = nodes.pods[node].len() - 1;
            nodes.take_from_row(node, last);
        }
        failure
    }

    /// Nodes that plugins restrict the pod to, and the plugins that do; else the plugin that refuses the pod.
    fn named_nodes(
        &self,
        cycle: Cycle<'_>,
    ) -> Result<(NodeNames, Vec<&'static str>), (&'static str, Rejection)> {
        let mut allowed: NodeNames = None;
        let mut naming = Vec::new();
        for row in &self.plugins.pre_filter {
            row.was_asked(1);
            let sampled = cycle.attempt.sampling().map(|meter| (meter, meter.now()));
            let names = row.plugin.node_names(cycle);
            if let Some((meter, since)) = sampled {
                let status = names.as_ref().err().map_or(SUCCESS, Rejection::status);
                meter.ran(ExtensionPoint::PreFilter, Some(row.name()), status, since);
            }
            let Some(names) = names.map_err(|rejection| (row.name(), rejection))? else {
                continue;
            };
            naming.push(row.name());
            allowed = Some(match allowed {
                None => names,
                Some(before) => before.intersection(&names).cloned().collect(),
            });
        }
        Ok((allowed, naming))
    }

    /// Nodes on which the pod would not fit beside the pods nominated to them.
    fn nominated(
        &self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        nominations: &Nominations,
    ) -> HashMap<NodeId, Failure> {
        let mut failures = HashMap::new();
        for name in nominations.nodes() {
            let Some(id) = nodes.id(name) else { continue };
            let promised = nominations.respected(attempt.pod(), name);
            if promised.is_empty() {
                continue;
            }
            if let Some(failure) = self.check_with(attempt, nodes, id, &promised) {
                failures.insert(id, failure);
            }
        }
        failures
    }
}

fn refused(plugin: &'static str, rejection: &Rejection, nodes: &NodeTable) -> FitError {
    let mut diagnosis = Diagnosis::new(nodes.node_count());
    diagnosis.pre_filter_message = Some(rejection.reasons.join(", "));
    diagnosis.plugins.insert(plugin);
    FitError::Unfit {
        diagnosis: Box::new(diagnosis),
        resolvable: Vec::new(),
    }
}

fn began(attempt: &Attempt) -> Option<Duration> {
    attempt.meter().map(Meter::now)
}

fn ran(attempt: &Attempt, point: ExtensionPoint, status: &'static str, begun: Option<Duration>) {
    if let Some((meter, begun)) = attempt.meter().zip(begun) {
        meter.ran(point, None, status, begun);
    }
}

/// Measures each plugin of single nodes on this one, in the attempts in which plugins are measured.
fn sample(plugins: &PluginSet, cycle: Cycle<'_>, node: NodeId) {
    let Some(meter) = cycle.attempt.sampling() else {
        return;
    };
    let is_own = |row: &&PluginRegistration| row.plugin.scope() == Scope::Node;
    for row in plugins.filter.iter().filter(is_own) {
        let since = meter.now();
        if let Some(filter) = row.plugin.filter(cycle) {
            let status = filter.check(node).err().map_or(SUCCESS, |own| own.status());
            meter.ran(ExtensionPoint::Filter, Some(row.name()), status, since);
        }
    }
    for row in plugins.score.iter().filter(is_own) {
        let since = meter.now();
        if let Some(score) = row.plugin.score(cycle) {
            score.score(node);
            meter.ran(ExtensionPoint::Score, Some(row.name()), SUCCESS, since);
        }
    }
}

fn cluster_filters<'a>(
    rows: &'a [PluginRegistration],
    cycle: Cycle<'a>,
) -> Vec<(&'static str, Box<dyn Filter + 'a>)> {
    let rows = rows.iter().filter(|row| row.plugin.scope() == Scope::Cluster);
    rows.filter_map(|row| {
        let sampled = cycle.attempt.sampling().map(|meter| (meter, meter.now()));
        let filter = filter_of(row, cycle)?;
        row.was_asked(cycle.nodes.node_count() as u64);
        if let Some((meter, since)) = sampled {
            meter.ran(ExtensionPoint::Filter, Some(row.name()), SUCCESS, since);
        }
        Some((row.name(), filter))
    })
    .collect()
}

/// The plugin's filter, with a step for asking it; one of [`Scope::Cluster`] counts what it looks at beyond.
fn filter_of<'a>(row: &'a PluginRegistration, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
    let filter = row.plugin.filter(cycle)?;
    cycle.attempt.worked(1);
    Some(filter)
}
