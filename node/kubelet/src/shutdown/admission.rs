//! Rejection of pods by a node that shuts down.

use crate::pods::admission::Rejection;

const REASON: &str = "NodeShutdown";
const MESSAGE: &str = "Pod was rejected as the node is shutting down.";

/// The rejection of any pod.
pub(crate) fn rejection() -> Rejection {
    Rejection {
        reason: REASON.into(),
        message: MESSAGE.to_owned(),
    }
}
