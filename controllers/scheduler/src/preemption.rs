//! Makes room: finds the node where the fewest and least important pods would have to go.

use crate::algorithm::{Algorithm, Nominations};
use crate::attempt::Attempt;
use crate::config::args::DefaultPreemptionArgs;
use crate::diagnosis::Diagnosis;
use crate::framework::Rejection;
use crate::nodes::{NodeId, NodeTable};
use crate::object::{LabelSelector, Pod};
use crate::pod::PodInfo;
use crate::selector::labels_match;
use machinery_meta::ObjectKey;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Fields of a PodDisruptionBudget that count here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    pub selector: Option<LabelSelector>,
    pub disruptions_allowed: i32,
    /// Pods whose eviction is already counted.
    pub disrupted_pods: BTreeSet<Box<str>>,
}

/// Budgets by name.
pub type Budgets = HashMap<ObjectKey, Budget>;

/// The node to clear, and of what.
#[derive(Debug)]
pub struct Candidate {
    pub node: NodeId,
    pub victims: Vec<Arc<PodInfo>>,
    pub(crate) violations: usize,
}

/// No pod has to go because nothing would help; the message says why, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptionImpossible(pub String);

/// Steps after which a dry run ends with what it has found: a second or two, in which no change is taken in.
pub(crate) const MAX_STEPS: usize = 1 << 24;

/// Input of the dry run beside the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    pub algorithm: &'a Algorithm,
    pub nominations: &'a Nominations,
    pub budgets: &'a Budgets,
}

/// A dry run of preemption, in steps of one node. It ends once it has as many candidates as upstream's requests, one that
/// breaks no budget among them, or [`MAX_STEPS`] behind it.
///
/// Invariant: nodes and pods stay as they are from its beginning to its end.
#[derive(Debug)]
pub struct DryRun {
    /// Nodes not looked at yet, the next one last.
    left: Vec<NodeId>,
    wanted: usize,
    steps_left: usize,
    candidates: Vec<Candidate>,
    diagnosis: Diagnosis,
}

impl DryRun {
    /// Begins a dry run on the nodes where other pods are in the way; `random` decides with which one it begins.
    pub fn begin(
        pod: &PodInfo,
        nodes: &NodeTable,
        resolvable: &[NodeId],
        random: u64,
        args: DefaultPreemptionArgs,
    ) -> Result<Self, PreemptionImpossible> {
        eligible(pod, nodes, resolvable)?;
        let (all, count) = (nodes.node_count(), resolvable.len());
        let mut diagnosis = Diagnosis::new(all);
        if count < all {
            diagnosis.add_reason("Preemption is not helpful for scheduling", all - count);
        }
        let mut left: Vec<NodeId> = resolvable.iter().rev().copied().collect();
        left.rotate_right(usize::try_from(random % count.max(1) as u64).unwrap_or(0));
        Ok(Self {
            left,
            wanted: candidates_wanted(args, count),
            steps_left: MAX_STEPS,
            candidates: Vec::new(),
            diagnosis,
        })
    }

    /// Looks at one node after another until the attempt has done so many steps. Returns whether the dry run is over.
    pub fn advance(
        &mut self,
        attempt: &Attempt,
        nodes: &mut NodeTable,
        around: Surroundings<'_>,
        steps: usize,
    ) -> bool {
        while !self.is_over()
            && let Some(node) = self.left.pop()
        {
            let before = attempt.steps();
            match victims_on(attempt, nodes, node, around) {
                Ok(candidate) => self.keep(candidate),
                Err(rejection) => self.diagnosis.add(&rejection, 1),
            }
            let done = attempt.steps().saturating_sub(before).max(1);
            self.steps_left = self.steps_left.saturating_sub(done);
            if attempt.steps() >= steps {
                break;
            }
        }
        self.is_over() || self.left.is_empty()
    }

    /// Keeps a candidate; of those that violate budgets as many as are wanted (upstream's `candidateList`).
    fn keep(&mut self, candidate: Candidate) {
        let violating = self.candidates.iter().filter(|own| own.violations > 0);
        if candidate.violations == 0 || violating.count() < self.wanted {
            self.candidates.push(candidate);
        }
    }

    fn is_over(&self) -> bool {
        self.steps_left == 0 || self.has_enough()
    }

    fn has_enough(&self) -> bool {
        self.candidates.len() >= self.wanted && self.candidates.iter().any(|one| one.violations == 0)
    }

    /// Nodes not looked at yet.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// The best node to preempt on.
    pub fn end(self) -> Result<Candidate, PreemptionImpossible> {
        let impossible = PreemptionImpossible(self.diagnosis_of_the_end().message());
        best_of(self.candidates).ok_or(impossible)
    }

    /// All nodes where preempting helps.
    pub(crate) fn candidates(self) -> Result<Vec<Candidate>, PreemptionImpossible> {
        match self.candidates.is_empty() {
            true => Err(PreemptionImpossible(self.diagnosis_of_the_end().message())),
            false => Ok(self.candidates),
        }
    }

    fn diagnosis_of_the_end(&self) -> Diagnosis {
        let mut diagnosis = self.diagnosis.clone();
        if !self.left.is_empty() {
            let words = "Preemption was not tried, other nodes took too long";
            diagnosis.add_reason(words, self.left.len());
        }
        diagnosis
    }
}

/// The best of these nodes.
pub(crate) fn best_of(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(rank)
}

/// Candidates after which the dry run ends, of so many nodes.
fn candidates_wanted(args: DefaultPreemptionArgs, nodes: usize) -> usize {
    let share = nodes.saturating_mul(args.min_candidate_nodes_percentage) / 100;
    share.max(args.min_candidate_nodes_absolute)
}

fn eligible(pod: &PodInfo, nodes: &NodeTable, resolvable: &[NodeId]) -> Result<(), PreemptionImpossible> {
    if &*pod.pod.spec.preemption_policy == "Never" {
        return Err(PreemptionImpossible(
            "not eligible due to preemptionPolicy=Never.".to_owned(),
        ));
    }
    waits_for(&pod.pod.status.nominated_node_name, nodes, resolvable, |own| {
        own.priority() < pod.priority() && terminates_by_preemption(&own.pod)
    })
}

/// Refuses a preemption where pods that go for an earlier one are still on the node that it nominated: the API may not have shown
/// yet that they go, nor which node was nominated.
pub(crate) fn has_room_made(
    pod: &PodInfo,
    nodes: &NodeTable,
    resolvable: &[NodeId],
    nominations: &Nominations,
) -> Result<(), PreemptionImpossible> {
    let nominated = nominations.node_of(pod).unwrap_or_default();
    waits_for(nominated, nodes, resolvable, |own| {
        nominations.is_victim(pod, own)
    })
}

/// Refuses where such a pod is on the nominated node; one that would not do for the pod in any case does not matter.
fn waits_for(
    nominated: &str,
    nodes: &NodeTable,
    resolvable: &[NodeId],
    is_leaving: impl Fn(&PodInfo) -> bool,
) -> Result<(), PreemptionImpossible> {
    let Some(node) = nodes.id(nominated).filter(|node| resolvable.contains(node)) else {
        return Ok(());
    };
    if nodes.pods[node].iter().any(|own| is_leaving(own)) {
        return Err(PreemptionImpossible(
            "not eligible due to a terminating pod on the nominated node.".to_owned(),
        ));
    }
    Ok(())
}

fn terminates_by_preemption(pod: &Pod) -> bool {
    pod.is_deleting()
        && pod.status.conditions.iter().any(|one| {
            &*one.type_ == "DisruptionTarget"
                && &*one.status == "True"
                && &*one.reason == "PreemptionByScheduler"
        })
}

/// Fewest broken budgets, then the least important most important victim, then the least importance in sum, then
/// the fewest victims, then those that started last.
fn rank(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Box<str>>) {
    let highest = candidate
        .victims
        .iter()
        .map(|victim| victim.priority())
        .max()
        .unwrap_or(i32::MIN);
    let offset = i64::from(i32::MAX) + 1;
    let sum = candidate
        .victims
        .iter()
        .map(|victim| i64::from(victim.priority()) + offset)
        .sum();
    let of_highest = candidate
        .victims
        .iter()
        .filter(|victim| victim.priority() == highest);
    let earliest = of_highest.map(|victim| started(victim)).min().unwrap_or_default();
    (
        candidate.violations,
        highest,
        sum,
        candidate.victims.len(),
        Reverse(earliest),
    )
}

/// Time at which a pod started, as text that sorts as times do (RFC 3339 in UTC); a pod that no kubelet has started yet
/// starts now, after all others (upstream's `GetPodStartTime`).
fn started(pod: &PodInfo) -> Box<str> {
    const NOW: &str = "~";
    pod.pod.status.start_time.clone().unwrap_or_else(|| NOW.into())
}

/// Takes every less important pod off the node, then puts back as many as possible, the important ones first.
/// The table is as before when this returns.
fn victims_on(
    attempt: &Attempt,
    nodes: &mut NodeTable,
    node: NodeId,
    around: Surroundings<'_>,
) -> Result<Candidate, Rejection> {
    let check = |nodes: &mut NodeTable| around.algorithm.check(attempt, nodes, node, around.nominations);
    let mut potential = Vec::new();
    for position in (0..nodes.pods[node].len()).rev() {
        if nodes.pods[node][position].priority() < attempt.pod().priority() {
            attempt.worked(nodes.moving_costs(&nodes.pods[node][position]));
            potential.push(nodes.take_from_row(node, position));
        }
    }
    if potential.is_empty() {
        return Err(Rejection::unresolvable(
            "No preemption victims found for incoming pod",
        ));
    }
    if let Some(failure) = check(nodes) {
        put_back(attempt, nodes, node, &potential);
        return Err(failure.rejection);
    }
    potential.sort_by_cached_key(|victim| (Reverse(victim.priority()), started(victim)));
    attempt.worked(potential.len() * around.budgets.len());
    let (violating, others) = split_by_budget(potential, around.budgets);
    let mut victims = Vec::new();
    let mut violations = 0;
    for (victim, violates) in violating
        .into_iter()
        .map(|one| (one, true))
        .chain(others.into_iter().map(|one| (one, false)))
    {
        put_back(attempt, nodes, node, std::slice::from_ref(&victim));
        if check(nodes).is_some() {
            let last = nodes.pods[node].len() - 1;
            nodes.take_from_row(node, last);
            violations += usize::from(violates);
            victims.push(victim);
        }
    }
    put_back(attempt, nodes, node, &victims);
    victims.sort_by_cached_key(|victim| (Reverse(victim.priority()), started(victim)));
    Ok(Candidate {
        node,
        victims,
        violations,
    })
}

fn put_back(attempt: &Attempt, nodes: &mut NodeTable, node: NodeId, pods: &[Arc<PodInfo>]) {
    for pod in pods {
        attempt.worked(nodes.moving_costs(pod));
        nodes.add_to_row(node, pod);
    }
}

/// Victims whose removal would break a budget, and the others; both keep their order.
fn split_by_budget(victims: Vec<Arc<PodInfo>>, budgets: &Budgets) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: HashMap<&ObjectKey, i32> = budgets
        .iter()
        .map(|(key, budget)| (key, budget.disruptions_allowed))
        .collect();
    victims.into_iter().partition(|victim| {
        let mut violates = false;
        for (key, budget) in budgets {
            let metadata = &victim.pod.metadata;
            let selects = *key.namespace == *metadata.namespace
                && !metadata.labels.is_empty()
                && budget
                    .selector
                    .as_ref()
                    .is_some_and(|one| *one != LabelSelector::default())
                && labels_match(budget.selector.as_ref(), &metadata.labels)
                && !budget.disrupted_pods.contains(&metadata.name);
            if let Some(left) = allowed.get_mut(key).filter(|_| selects) {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}
