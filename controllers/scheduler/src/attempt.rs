//! One attempt to place a pod: what is computed of the pod once for all nodes, and the work done so far.
//!
//! Invariant: a list that a tenant makes as long as it likes is decoded at most once per attempt, the dry run of
//! preemption included, and only where a node asks.

use crate::framework::Cycle;
use crate::nodes::NodeTable;
use crate::object::{NodeAffinity, Taint, Toleration, TopologySpreadConstraint};
use crate::pod::LONG_STEP;
use crate::pod::PodInfo;
use crate::selector_counts::{Term, TermKind};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Tolerations that are looked through for every node; the answers of longer lists are kept by taint.
const FEW: usize = 16;

/// The pod being placed. Its steps are nodes rated, and items decoded or compared: each about a tenth of a microsecond.
#[derive(Debug)]
pub struct Attempt {
    pod: Arc<PodInfo>,
    decoded: OnceCell<Box<[Toleration]>>,
    node_affinity: OnceCell<NodeAffinity>,
    terms: OnceCell<Vec<(TermKind, Term)>>,
    spread: OnceCell<Vec<TopologySpreadConstraint>>,
    tolerated: RefCell<HashMap<Taint, bool>>,
    steps: Cell<usize>,
}

impl Attempt {
    pub fn new(pod: &Arc<PodInfo>) -> Self {
        Self {
            pod: Arc::clone(pod),
            decoded: OnceCell::new(),
            node_affinity: OnceCell::new(),
            terms: OnceCell::new(),
            spread: OnceCell::new(),
            tolerated: RefCell::default(),
            steps: Cell::new(0),
        }
    }

    pub fn pod(&self) -> &Arc<PodInfo> {
        &self.pod
    }

    /// The attempt on these nodes.
    pub fn on<'b>(&'b self, nodes: &'b NodeTable) -> Cycle<'b> {
        Cycle {
            pod: &self.pod,
            nodes,
            attempt: self,
        }
    }

    /// Whether the pod tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if let Some(known) = self.tolerated.borrow().get(taint) {
            return *known;
        }
        let tolerations = self.tolerations();
        let tolerated = tolerations.iter().any(|one| one.tolerates(taint));
        if tolerations.len() > FEW {
            self.worked(tolerations.len());
            self.tolerated.borrow_mut().insert(taint.clone(), tolerated);
        }
        tolerated
    }

    fn tolerations(&self) -> &[Toleration] {
        self.pod.shape.tolerations.items_once(&self.decoded, |decoded| {
            self.worked(decoded);
        })
    }

    /// The pod's affinity to nodes.
    pub fn node_affinity(&self) -> &NodeAffinity {
        let affinity = &self.pod.shape.node_affinity;
        affinity.get_once(&self.node_affinity, |bytes| self.worked(bytes / LONG_STEP))
    }

    /// The pod's terms of affinity to pods.
    pub fn terms(&self) -> &[(TermKind, Term)] {
        match self.pod.terms_if_short() {
            Some(terms) => terms,
            None => self.terms.get_or_init(|| {
                self.worked(self.pod.term_steps());
                self.pod.terms().into_owned()
            }),
        }
    }

    /// The pod's own spread constraints.
    pub fn spread_constraints(&self) -> &[TopologySpreadConstraint] {
        let constraints = &self.pod.pod.spec.topology_spread_constraints;
        constraints.get_once(&self.spread, |bytes| self.worked(bytes / LONG_STEP))
    }

    /// Counts steps done for the pod.
    pub fn worked(&self, steps: usize) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    /// Steps done for the pod so far, or since they were last taken.
    pub fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Takes the steps done: counting begins anew.
    pub fn take_steps(&self) -> usize {
        self.steps.take()
    }
}
