//! Errors of calls to the runtime.

use tonic::Code;

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The runtime refused or failed.
    #[error("{action}: {}", status.message())]
    Call {
        /// Operation.
        action: &'static str,
        /// The runtime's answer.
        status: Box<tonic::Status>,
    },
    /// A file or pipe of ours failed.
    #[error("{action}")]
    Io {
        /// Operation.
        action: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Input from outside is invalid.
    #[error("{action}: {reason}")]
    Invalid {
        /// Operation.
        action: &'static str,
        /// Reason.
        reason: String,
    },
}

impl CriError {
    pub(crate) fn call(action: &'static str) -> impl Fn(tonic::Status) -> Self {
        move |status| Self::Call {
            action,
            status: Box::new(status),
        }
    }

    pub(crate) fn io(action: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    pub(crate) fn invalid(action: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Invalid {
            action,
            reason: reason.to_string(),
        }
    }

    /// The status code of a refused call.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Reports whether the object of the call was not found.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// Reports whether the runtime has no such call.
    pub fn is_unknown_call(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Reports whether the call timed out.
    pub fn is_timeout(&self) -> bool {
        // tonic's own deadline is reported as cancelled, the server's as deadline exceeded.
        matches!(self.code(), Some(Code::DeadlineExceeded | Code::Cancelled))
    }

    /// Reports whether the runtime itself reported the failure. Otherwise the call may still be executed.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Call { status, .. } => {
                let answered = std::error::Error::source(status.as_ref()).is_none();
                answered && !self.is_timeout() && status.code() != Code::Unavailable
            }
            _ => false,
        }
    }

    /// The runtime's own words, or ours.
    pub fn message(&self) -> String {
        match self {
            Self::Call { status, .. } => status.message().to_string(),
            Self::Io { action, source } => format!("{action}: {source}"),
            Self::Invalid { .. } => self.to_string(),
        }
    }
}
