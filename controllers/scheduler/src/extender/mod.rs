//! Extenders: other servers that are asked about the nodes of a pod.
//!
//! An attempt for a pod that an extender is interested in stops after the filters with a [`Question`]: [`Consultants`] ask one
//! extender after the other which nodes will do, then all of them how good these are ([`consult`]), by POSTs of JSON ([`call`],
//! [`wire`]). With the [`Answer`] the attempt goes on where it stopped, on the nodes as they are by then. The same happens
//! with the victims of a preemption ([`preempting`]); an extender that binds takes the place of the binding.
//!
//! Answers are bounded in bytes and time. Until an answer is there no other pod is tried, as upstream; what changes is taken in.

mod call;
mod consult;
mod preempting;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use consult::Consultants;
pub(crate) use preempting::Proposal;

use crate::config::ExtenderConfig;
use crate::pod::PodInfo;
use crate::rejection::Rejection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name under which rejections by extenders are counted.
pub(crate) const EXTENDER: &str = "Extender";

/// A question about a pod that waits for its answer.
#[derive(Debug)]
pub struct Question {
    pub pod: Arc<PodInfo>,
    pub(crate) about: About,
}

/// Subjects of a question.
#[derive(Debug)]
pub(crate) enum About {
    Nodes {
        /// The nominated node of the pod, where it fits: asked about first, and alone.
        nominated: Option<Box<str>>,
        nodes: Vec<Box<str>>,
    },
    Victims(Vec<Proposal>),
}

/// An answer, or the reason why there is none.
#[derive(Debug)]
pub(crate) enum Answer {
    Nodes(Result<Verdict, String>),
    Victims(Result<Vec<Proposal>, String>),
}

/// Nodes that extenders leave of those that they were asked about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// With what extenders add to their scores.
    pub(crate) scores: BTreeMap<Box<str>, i64>,
    pub(crate) rejected: BTreeMap<Box<str>, Rejection>,
}

/// The part of the extenders that the scheduler itself knows.
#[derive(Debug, Default, Clone)]
pub(crate) struct Interests(Arc<[Interest]>);

#[derive(Debug)]
struct Interest {
    managed: BTreeSet<Box<str>>,
    rates: bool,
    filters: bool,
    preempts: bool,
}

impl Interests {
    pub(crate) fn new(extenders: &[ExtenderConfig]) -> Self {
        let interest = |own: &ExtenderConfig| Interest {
            managed: own.managed_resources.clone(),
            rates: !own.prioritize_verb.is_empty(),
            filters: !own.filter_verb.is_empty(),
            preempts: !own.preempt_verb.is_empty(),
        };
        Self(extenders.iter().map(interest).collect())
    }

    /// Reports whether an extender is to be asked about the pod's nodes.
    pub(crate) fn ask_about_nodes(&self, pod: &PodInfo) -> bool {
        let asks = |own: &&Interest| own.rates || own.filters;
        self.0.iter().filter(asks).any(|own| concerns(&own.managed, pod))
    }

    /// Reports whether an extender is to be asked about pods that would have to go for this one.
    pub(crate) fn ask_about_victims(&self, pod: &PodInfo) -> bool {
        let asks = |own: &&Interest| own.preempts;
        self.0.iter().filter(asks).any(|own| concerns(&own.managed, pod))
    }

    /// Reports whether any filters or rates nodes: one node is not enough then.
    pub(crate) fn compare_nodes(&self) -> bool {
        self.0.iter().any(|own| own.rates || own.filters)
    }
}

/// Reports whether the pod requests one of the resources; without any every pod concerns an extender.
fn concerns(managed: &BTreeSet<Box<str>>, pod: &PodInfo) -> bool {
    let mut asked_for = pod.shape.requests.scalars.keys();
    managed.is_empty() || asked_for.any(|name| managed.contains(name))
}
