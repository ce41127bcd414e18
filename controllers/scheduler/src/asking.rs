//! Attempts that wait for the answer of extenders, one at a time.
//!
//! Changes are taken in meanwhile, so that an attempt begins its cycle anew with the answer: the filters run on the nodes as they
//! are by then, and of what the extenders were asked about only what they left counts.

use crate::algorithm::{Extenders, FitError, Placement};
use crate::attempt::Attempt;
use crate::decision::Decision;
use crate::diagnosis::Diagnosis;
use crate::extender::{About, Answer, Proposal, Question, Verdict};
use crate::measuring::Measuring;
use crate::metrics::AttemptResult;
use crate::nodes::NodeId;
use crate::pod::PodInfo;
use crate::preemption::{Candidate, best_of};
use crate::scheduler::Scheduler;
use std::sync::Arc;
use std::time::Duration;

/// An attempt that waits.
#[derive(Debug)]
pub(crate) struct Asking {
    attempt: Attempt,
    /// Reasons why the pod fits nowhere as it is, where the question is about victims.
    preempting: Option<Preempting>,
    answer: Option<Answer>,
}

#[derive(Debug)]
pub(crate) struct Preempting {
    pub(crate) diagnosis: Box<Diagnosis>,
    /// Beginning of the search for victims, where that is measured.
    pub(crate) begun: Option<Duration>,
}

impl Scheduler {
    /// Reports whether no pod is tried until an answer is there.
    pub(crate) fn waits_for_an_answer(&self) -> bool {
        self.asking.as_ref().is_some_and(|own| own.answer.is_none())
    }

    pub(crate) fn has_an_answer(&self) -> bool {
        self.asking.as_ref().is_some_and(|own| own.answer.is_some())
    }

    /// The answer to the question that was asked last; [`Self::decide`] goes on with it.
    pub(crate) fn answered(&mut self, answer: Answer) {
        if let Some(asking) = &mut self.asking {
            asking.answer = Some(answer);
        }
    }

    pub(crate) fn place(
        &mut self,
        attempt: &Attempt,
        extenders: Extenders<'_>,
        now: Duration,
        random: u64,
    ) -> Option<Result<Placement, FitError>> {
        let name = &attempt.pod().pod.spec.scheduler_name;
        let algorithm = &mut self.profiles.get_mut(name)?.algorithm;
        algorithm.set_now(now);
        let placed = algorithm.place_with(attempt, &mut self.nodes, &self.nominations, random, extenders);
        self.charge(attempt);
        Some(placed)
    }

    /// Asks about the nodes that the pod fits.
    pub(crate) fn ask_about_nodes(
        &mut self,
        attempt: Attempt,
        nominated: Option<NodeId>,
        nodes: &[NodeId],
    ) -> Decision {
        let name = |node: NodeId| self.nodes.names[node].clone();
        let about = About::Nodes {
            nominated: nominated.map(name),
            nodes: nodes.iter().map(|node| name(*node)).collect(),
        };
        self.ask(attempt, about, None)
    }

    /// Asks about the pods that would have to go.
    pub(crate) fn ask_about_victims(
        &mut self,
        attempt: Attempt,
        candidates: Vec<Candidate>,
        preempting: Preempting,
    ) -> Decision {
        let proposal = |own: Candidate| Proposal {
            node: self.nodes.names[own.node].clone(),
            on_node: self.nodes.pods[own.node].as_slice().into(),
            victims: own.victims,
            violations: own.violations,
        };
        let proposals = candidates.into_iter().map(proposal).collect();
        self.ask(attempt, About::Victims(proposals), Some(preempting))
    }

    fn ask(&mut self, attempt: Attempt, about: About, preempting: Option<Preempting>) -> Decision {
        let pod = Arc::clone(attempt.pod());
        self.asking = Some(Asking {
            attempt,
            preempting,
            answer: None,
        });
        Decision::Ask(Question { pod, about })
    }

    /// Goes on with the attempt whose answer is there.
    pub(crate) fn go_on_with_answer(&mut self, now: Duration, random: u64) -> Option<Decision> {
        let asking = self.asking.take()?;
        let pod = Arc::clone(asking.attempt.pod());
        if !self.queue.is_tried(&pod) {
            // It is gone, or has a node by now.
            self.measuring.forget_pod(&pod);
            return None;
        }
        match (asking.answer?, asking.preempting) {
            (Answer::Nodes(Ok(verdict)), _) => {
                self.place_as_answered(&pod, asking.attempt, &verdict, now, random)
            }
            (Answer::Nodes(Err(message)), _) => Some(self.went_wrong(asking.attempt, message, now)),
            (Answer::Victims(left), Some(preempting)) => {
                let found = left.map(|left| best_of(self.candidates(left)));
                Some(self.preempt_as_answered(&asking.attempt, preempting, found, now))
            }
            (Answer::Victims(_), None) => None,
        }
    }

    fn place_as_answered(
        &mut self,
        pod: &Arc<PodInfo>,
        attempt: Attempt,
        verdict: &Verdict,
        now: Duration,
        random: u64,
    ) -> Option<Decision> {
        // What the attempt computed is of the nodes as they were.
        let attempt = Measuring::again(pod, attempt);
        let placed = self.place(&attempt, Extenders::Asked(verdict), now, random)?;
        if let Some(error) = devices_error(&attempt) {
            return Some(self.went_wrong(attempt, error, now));
        }
        match placed {
            Ok(Placement::On(node)) => Some(self.assume(&attempt, node, now)),
            Ok(Placement::Ask(..)) => None,
            Err(unplaced) => self.unplaced(attempt, unplaced, now, random),
        }
    }

    /// Candidates whose node and victims are still there.
    fn candidates(&self, left: Vec<Proposal>) -> Vec<Candidate> {
        let is_there = |node: NodeId, victim: &Arc<PodInfo>| {
            self.nodes.pods[node].iter().any(|own| own.uid() == victim.uid())
        };
        let candidate = |own: Proposal| {
            let node = self.nodes.id(&own.node)?;
            let all = own.victims.iter().all(|victim| is_there(node, victim));
            all.then_some(Candidate {
                node,
                victims: own.victims,
                violations: own.violations,
            })
        };
        left.into_iter().filter_map(candidate).collect()
    }

    /// The attempt ends with an error, and is repeated after backing off.
    pub(crate) fn went_wrong(&mut self, attempt: Attempt, message: String, now: Duration) -> Decision {
        let pod = Arc::clone(attempt.pod());
        self.measuring.decided(&attempt);
        self.measuring.end(&pod, AttemptResult::Error);
        self.nominations.remove(&pod);
        self.queue.retry(&pod.key, now);
        Decision::Error { pod, message }
    }
}

/// The message of an attempt that the search for devices ended.
pub(crate) fn devices_error(attempt: &Attempt) -> Option<String> {
    let error = attempt.devices_error()?;
    Some(format!("running \"DynamicResources\" filter plugin: {error}"))
}
