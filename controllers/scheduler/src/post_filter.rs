//! A pod that fits nowhere: others may have to go for it, and it is rejected in upstream's words.

use crate::algorithm::FitError;
use crate::asking::Preempting;
use crate::attempt::Attempt;
use crate::decision::{Decision, Nomination, Preemption};
use crate::devices::DYNAMIC_RESOURCES;
use crate::devices::post_filter::after_filters;
use crate::diagnosis::Diagnosis;
use crate::extender::EXTENDER;
use crate::framework::ClusterEvents;
use crate::meter::{ExtensionPoint, Meter, SUCCESS, UNSCHEDULABLE};
use crate::metrics::AttemptResult;
use crate::pod::PodInfo;
use crate::preemption::{Candidate, DryRun, PreemptionImpossible, Surroundings, has_room_made};
use crate::scheduler::{BURST_STEPS, Scheduler};
use crate::wakes::Wakes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A dry run, the attempt that it is for, and why the pod fits nowhere as it is.
#[derive(Debug)]
pub(crate) struct DryRunOf {
    attempt: Attempt,
    diagnosis: Box<Diagnosis>,
    dry_run: DryRun,
    /// Its beginning, where that is measured.
    begun: Option<Duration>,
}

impl Scheduler {
    pub(crate) fn unplaced(
        &mut self,
        attempt: Attempt,
        unplaced: FitError,
        now: Duration,
        random: u64,
    ) -> Option<Decision> {
        let (diagnosis, resolvable) = match unplaced {
            FitError::NoNodes => return Some(self.no_nodes(&attempt, now)),
            FitError::Unfit {
                diagnosis,
                resolvable,
            } => (diagnosis, resolvable),
        };
        if diagnosis.pre_filter_message.is_some() && !diagnosis.plugins.contains(DYNAMIC_RESOURCES) {
            // What upstream's DynamicResources says in a cycle that ended before its turn; no pod is preempted.
            let end = PostFilterEnd::kept("not found".to_owned());
            return Some(self.rejected(&attempt, *diagnosis, end, now));
        }
        let pod = attempt.pod();
        let Some(args) = self.profile_of(pod).and_then(|profile| profile.preemption) else {
            return Some(self.rejected(&attempt, *diagnosis, PostFilterEnd::default(), now));
        };
        let begun = attempt.meter().map(Meter::now);
        let nodes = &self.nodes;
        let may = has_room_made(pod, nodes, &resolvable, &self.nominations);
        match may.and_then(|()| DryRun::begin(pod, nodes, &resolvable, random, args)) {
            Ok(dry_run) => {
                let begun = DryRunOf {
                    attempt,
                    diagnosis,
                    dry_run,
                    begun,
                };
                self.go_on(begun, now)
            }
            Err(impossible) => {
                let end = PostFilterEnd::kept(format!("preemption: {}", impossible.0));
                self.post_filter_ran(&attempt, begun, None);
                Some(self.rejected(&attempt, *diagnosis, end, now))
            }
        }
    }

    fn no_nodes(&mut self, attempt: &Attempt, now: Duration) -> Decision {
        let pod = attempt.pod();
        self.measuring.decided(attempt);
        self.measuring.end(pod, AttemptResult::Unschedulable);
        self.queue
            .reject(&pod.key, BTreeSet::new(), ClusterEvents::ANY, now);
        self.nominations.remove(pod);
        Decision::Reject {
            pod: Arc::clone(pod),
            message: FitError::NoNodes.message(),
            preemption: None,
            nomination: Nomination::Cleared,
            deallocation: None,
        }
    }

    fn post_filter_ran(&self, attempt: &Attempt, begun: Option<Duration>, victims: Option<usize>) {
        self.measuring.preemption_was_tried(victims);
        if let Some((meter, begun)) = attempt.meter().zip(begun) {
            let status = if victims.is_some() { SUCCESS } else { UNSCHEDULABLE };
            meter.ran(ExtensionPoint::PostFilter, None, status, begun);
        }
    }

    /// Brings a dry run forward by as many steps as a burst has.
    pub(crate) fn go_on(&mut self, mut begun: DryRunOf, now: Duration) -> Option<Decision> {
        let attempt = &begun.attempt;
        let around = Surroundings {
            algorithm: &self
                .profiles
                .get(&attempt.pod().pod.spec.scheduler_name)?
                .algorithm,
            nominations: &self.nominations,
            budgets: &self.budgets,
        };
        let steps = BURST_STEPS.saturating_sub(self.steps);
        let over = begun.dry_run.advance(attempt, &mut self.nodes, around, steps);
        self.charge(&begun.attempt);
        if !over {
            self.dry_run = Some(begun);
            return None;
        }
        let pod = Arc::clone(begun.attempt.pod());
        let found = match self.extenders.ask_about_victims(&pod) {
            true => match begun.dry_run.candidates() {
                Ok(candidates) => {
                    let preempting = Preempting {
                        diagnosis: begun.diagnosis,
                        begun: begun.begun,
                    };
                    return Some(self.ask_about_victims(begun.attempt, candidates, preempting));
                }
                Err(impossible) => Err(impossible),
            },
            false => begun.dry_run.end(),
        };
        let end = self.preempt(&pod, found);
        let victims = end.preemption.as_ref().map(|own| own.victims.len());
        self.post_filter_ran(&begun.attempt, begun.begun, victims);
        Some(self.rejected(&begun.attempt, *begun.diagnosis, end, now))
    }

    /// Ends an attempt whose victims extenders were asked about.
    pub(crate) fn preempt_as_answered(
        &mut self,
        attempt: &Attempt,
        preempting: Preempting,
        found: Result<Option<Candidate>, String>,
        now: Duration,
    ) -> Decision {
        let pod = Arc::clone(attempt.pod());
        let end = match found {
            Ok(Some(candidate)) => self.preempt(&pod, Ok(candidate)),
            Ok(None) => PostFilterEnd::kept("preemption: no candidate node for preemption".to_owned()),
            Err(why) => PostFilterEnd::kept(format!("preemption: {why}")),
        };
        let victims = end.preemption.as_ref().map(|own| own.victims.len());
        self.post_filter_ran(attempt, preempting.begun, victims);
        self.rejected(attempt, *preempting.diagnosis, end, now)
    }

    fn rejected(
        &mut self,
        attempt: &Attempt,
        mut diagnosis: Diagnosis,
        end: PostFilterEnd,
        now: Duration,
    ) -> Decision {
        let pod = attempt.pod();
        self.measuring.decided(attempt);
        self.measuring.end(pod, AttemptResult::Unschedulable);
        let (deallocation, message) = match self.profile_of(pod).is_some_and(|own| own.deallocates) {
            true => after_filters(
                attempt,
                &self.nodes.devices,
                end.preemption.is_some(),
                end.message,
            ),
            false => (None, end.message),
        };
        diagnosis.post_filter_message = message;
        if end.preemption.is_none() && end.nomination == Nomination::Cleared {
            self.nominations.remove(pod);
        }
        let message = diagnosis.message();
        let plugins = self.profile_of(pod).map(|profile| profile.algorithm.plugins());
        // An extender does not say what helps it.
        let plugins = plugins.filter(|_| !diagnosis.plugins.contains(EXTENDER));
        let any = || Wakes::from(ClusterEvents::ANY);
        let wakes_on = plugins.map_or_else(any, |own| own.rejecting(&diagnosis.plugins).into());
        self.queue.reject(&pod.key, diagnosis.plugins, wakes_on, now);
        Decision::Reject {
            pod: Arc::clone(pod),
            message,
            preemption: end.preemption,
            nomination: end.nomination,
            deallocation,
        }
    }

    /// Victims of a preemption stay, as they could not be deleted: the pod is tried again.
    pub fn not_preempted(&mut self, pod: &PodInfo, victims: &[Arc<PodInfo>], now: Duration) {
        for victim in victims {
            self.nominations.stays(pod, victim);
        }
        let is_pod = |own: &PodInfo| own.key == pod.key;
        self.queue.happened_to(ClusterEvents::POD_GONE, now, is_pod);
    }

    /// Nominates the node and its victims; where preempting helps nowhere, no node is nominated for the pod any more.
    fn preempt(
        &mut self,
        pod: &Arc<PodInfo>,
        found: Result<Candidate, PreemptionImpossible>,
    ) -> PostFilterEnd {
        let candidate = match found {
            Ok(candidate) => candidate,
            Err(not_helpful) => {
                return PostFilterEnd {
                    message: Some(format!("preemption: {}", not_helpful.0)),
                    ..PostFilterEnd::default()
                };
            }
        };
        let node = self.nodes.names[candidate.node].clone();
        let count = candidate.victims.len();
        let message = found_words(&node, count);
        let dispossessed = self.nominations.lower(pod, &node);
        dispossessed
            .iter()
            .for_each(|other| self.nominations.remove(other));
        self.nominations.add(pod, &node);
        self.nominations.preempts(pod, &candidate.victims);
        let preemption = Preemption {
            node,
            victims: candidate.victims,
            dispossessed,
        };
        PostFilterEnd {
            message: Some(message),
            preemption: Some(preemption),
            nomination: Nomination::Kept,
        }
    }
}

/// Upstream's words where pods make room.
pub(crate) fn found_words(node: &str, victims: usize) -> String {
    format!("preemption: found a potential placement for pod on node {node}, preempting {victims} victims")
}

/// Result of the search for victims: nothing that helps, by default.
#[derive(Debug)]
struct PostFilterEnd {
    message: Option<String>,
    preemption: Option<Preemption>,
    nomination: Nomination,
}

impl Default for PostFilterEnd {
    fn default() -> Self {
        Self {
            message: None,
            preemption: None,
            nomination: Nomination::Cleared,
        }
    }
}

impl PostFilterEnd {
    /// Nothing was looked at.
    fn kept(message: String) -> Self {
        Self {
            message: Some(message),
            preemption: None,
            nomination: Nomination::Kept,
        }
    }
}
