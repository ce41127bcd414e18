//! State of a projection: what its files have, and since when they should have been refreshed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node_volume::Credentials;

/// A certificate that is not refreshed so long after it should be is overdue, as upstream's.
const OVERDUE_AFTER: Duration = Duration::from_secs(600);

/// Credentials that were issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) credentials: Arc<Credentials>,
    /// As the signer says, and up to five minutes later.
    pub(super) refresh_at: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Issued {
    pub(super) fn overdue_at(&self) -> Timestamp {
        self.refresh_at
            .checked_add(OVERDUE_AFTER)
            .unwrap_or(self.refresh_at)
    }
}

/// State of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was issued yet; with the last failure.
    Waiting(Option<String>),
    Issued(Issued),
    /// For good: reason and message of the signer.
    Denied(String, String),
    /// For good: reason and message of the signer, or of this node.
    Failed(String, String),
}

impl State {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// The credentials, or why there are none.
    pub(super) fn credentials(&self) -> Result<Arc<Credentials>, String> {
        match self {
            Self::Issued(issued) => Ok(issued.credentials.clone()),
            Self::Waiting(None) => Err("credential bundle is not issued yet".to_owned()),
            Self::Waiting(Some(why)) => Err(format!("credential bundle is not issued yet: {why}")),
            Self::Denied(reason, message) => Err(format!(
                "PodCertificateRequest was permanently denied: reason={reason:?} message={message:?}"
            )),
            Self::Failed(reason, message) => Err(format!(
                "PodCertificateRequest was permanently failed: reason={reason:?} message={message:?}"
            )),
        }
    }

    /// Upstream's name of the state in its metric.
    pub(super) fn name(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Waiting(_) => "not_yet_issued",
            Self::Denied(..) => "denied",
            Self::Failed(..) => "failed",
            Self::Issued(issued) if now > issued.not_after => "expired",
            Self::Issued(issued) if now > issued.overdue_at() => "overdue_for_refresh",
            Self::Issued(_) => "fresh",
        }
    }
}
