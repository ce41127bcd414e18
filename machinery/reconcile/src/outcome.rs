//! Results of looking at an object.

use machinery_client::ClientError;
use std::time::Duration;

/// Outcome of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Until something changes there is nothing to do.
    Done,
    /// There is, after this time.
    RequeueAfter(Duration),
    /// Nothing, and changes within this time are reconciled together after it: the reconcile cost others much.
    Rest(Duration),
}

/// Reason why a reconcile is retried.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request failed while doing this.
    #[error("{doing}")]
    Request {
        /// Such as "creating a pod".
        doing: String,
        /// Cause.
        #[source]
        source: ClientError,
    },
    /// The object says something that cannot be acted on.
    #[error("{0}")]
    Unusable(String),
    /// Several things failed; this was the first.
    #[error("{failed} of {attempted} failed")]
    Partly {
        /// Number of failed requests.
        failed: usize,
        /// Number of all requests.
        attempted: usize,
        /// The first of them.
        #[source]
        first: ClientError,
    },
}

impl From<ClientError> for ReconcileError {
    fn from(source: ClientError) -> Self {
        Self::Request {
            doing: "request".to_owned(),
            source,
        }
    }
}

impl ReconcileError {
    /// Says what was being done.
    pub fn doing(doing: impl Into<String>) -> impl FnOnce(ClientError) -> Self {
        let doing = doing.into();
        move |source| Self::Request { doing, source }
    }

    /// Expected now and then: another wrote first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } | Self::Partly { first: source, .. } if source.is_conflict())
    }

    /// The error with its causes, as events and the log show it.
    pub fn chain(&self) -> String {
        machinery_meta::error_chain::error_chain(self)
    }
}
