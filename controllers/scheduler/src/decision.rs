//! Decisions of the scheduler about pods, to be carried out by others.

use crate::devices::{Deallocation, HeldClaim};
use crate::extender::Question;
use crate::pod::PodInfo;
use crate::volumes::Reservation;
use std::sync::Arc;

/// A decision about one pod.
#[derive(Debug)]
pub enum Decision {
    /// The pod is assumed on the node: bind it.
    Bind {
        pod: Arc<PodInfo>,
        node: Box<str>,
        /// Claims of devices that it gives back where it is not bound.
        held: Vec<HeldClaim>,
    },
    /// The pod is assumed on the node, and its claims are not bound yet: write what is reserved.
    Reserve {
        pod: Arc<PodInfo>,
        node: Box<str>,
        reservation: Reservation,
    },
    /// Extenders are to be asked before it is decided.
    Ask(Question),
    /// Something went wrong before the pod had a node: say so.
    Error { pod: Arc<PodInfo>, message: String },
    /// The pod is assumed on a node, and cannot be bound to it: say so.
    Fail {
        pod: Arc<PodInfo>,
        message: String,
        /// Claims of devices that it gives back.
        held: Vec<HeldClaim>,
    },
    /// The pod fits nowhere: say so.
    Reject {
        pod: Arc<PodInfo>,
        message: String,
        preemption: Option<Preemption>,
        nomination: Nomination,
        /// A claim that is to give its devices back.
        deallocation: Option<Deallocation>,
    },
}

/// The nominated node of a rejected pod, where no other is nominated now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nomination {
    /// It stays: the pod may not preempt, or its victims are leaving.
    Kept,
    /// It is taken back: preempting helps on no node.
    Cleared,
}

/// Pods to delete so that another will fit.
#[derive(Debug)]
pub struct Preemption {
    pub node: Box<str>,
    pub victims: Vec<Arc<PodInfo>>,
    /// Pods whose nomination to this node is cleared.
    pub dispossessed: Vec<Arc<PodInfo>>,
}
