//! One attempt to place a pod: what is computed of the pod once for all nodes, and the work done so far.
//!
//! Invariant: a list that a tenant makes as long as it likes is decoded at most once per attempt, the dry run of
//! preemption included, and only where a node asks.

use crate::framework::Cycle;
use crate::nodes::NodeTable;
use crate::object::{Taint, Toleration};
use crate::pod::PodInfo;
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
    tolerated: RefCell<HashMap<Taint, bool>>,
    steps: Cell<usize>,
}

impl Attempt {
    pub fn new(pod: &Arc<PodInfo>) -> Self {
        Self {
            pod: Arc::clone(pod),
            decoded: OnceCell::new(),
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
