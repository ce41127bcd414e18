//! The words of a rejection.

use crate::meter::{UNRESOLVABLE, UNSCHEDULABLE};
use std::borrow::Cow;

/// The node will not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Upstream's wording; counted over the nodes in the pod's message.
    pub reasons: Vec<Cow<'static, str>>,
    /// Preempting other pods would not help.
    pub unresolvable: bool,
}

impl Rejection {
    /// Other pods are in the way.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reasons: vec![reason.into()],
            unresolvable: false,
        }
    }

    /// The node itself is wrong for the pod.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reasons: vec![reason.into()],
            unresolvable: true,
        }
    }

    /// Upstream's code of it.
    pub fn status(&self) -> &'static str {
        if self.unresolvable {
            UNRESOLVABLE
        } else {
            UNSCHEDULABLE
        }
    }
}

/// Bytes of a reason of which tenants or drivers choose the length: it stands in the pod's condition and in an event.
const MAX_REASON: usize = 1024;

/// Cuts a reason that a tenant or a driver made as long as it likes.
pub(crate) fn bounded_reason(mut why: String) -> String {
    why.truncate(why.floor_char_boundary(MAX_REASON));
    why
}
