//! Failures of requests to the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery_runtime::AnswerRoom;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a `Status`.
    #[error("{}", .0.message.as_deref().unwrap_or("the server answered without a message"))]
    Status(Box<Status>),
    /// The request could not be sent or the answer not be read.
    #[error("sending the request")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer within the client's bound.
    #[error("no answer from the server within {seconds} s")]
    TimedOut {
        /// The bound.
        seconds: u64,
    },
    /// The answer is not what it should be.
    #[error("decoding {what}")]
    Decode {
        /// Expected type.
        what: String,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// The answer is larger than the client accepts.
    #[error("the answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The bound.
        limit_bytes: usize,
    },
    /// An API extension answers more than this process keeps of it.
    #[error("no room for more that the API extension {} answers", .0.name())]
    NoRoom(AnswerRoom),
    /// The request could not be built.
    #[error("building the request")]
    Request(#[from] http::Error),
    /// No object has such a name, so that it is requested at no path.
    #[error("invalid resource name {name:?}: {problems}")]
    Name {
        /// The name, or the namespace.
        name: String,
        /// Problems of the name.
        problems: String,
    },
    /// The kubeconfig cannot be used.
    #[error("reading the kubeconfig: {0}")]
    Config(String),
}

impl ClientError {
    /// The HTTP code of the server's `Status`, zero where there is none.
    pub fn code(&self) -> i32 {
        match self {
            Self::Status(status) => status.code.unwrap_or(0),
            _ => 0,
        }
    }

    /// The reason of the server's `Status`, empty where there is none.
    pub fn reason(&self) -> &str {
        match self {
            Self::Status(status) => status.reason.as_deref().unwrap_or(""),
            _ => "",
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound"
    }

    /// The name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// The object moved on, or a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The server refuses this identity.
    pub fn is_forbidden(&self) -> bool {
        self.reason() == "Forbidden"
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.reason() == "Invalid"
    }

    /// The revision requested is no longer to be had.
    pub fn is_expired(&self) -> bool {
        self.code() == 410 || matches!(self.reason(), "Expired" | "Gone")
    }

    /// The revision requested is beyond the server's newest: it has come back with an older state.
    pub fn is_revision_too_large(&self) -> bool {
        self.has_cause("ResourceVersionTooLarge")
    }

    /// Reports whether the `Status` names this cause, such as `NamespaceTerminating`.
    pub fn has_cause(&self, cause: &str) -> bool {
        let Self::Status(status) = self else { return false };
        let causes = status
            .details
            .as_ref()
            .and_then(|details| details.causes.as_ref());
        causes.is_some_and(|causes| causes.iter().any(|own| own.reason.as_deref() == Some(cause)))
    }

    /// Reports whether the outcome is unknown: no answer was received, or the server timed out.
    pub fn leaves_open(&self) -> bool {
        match self {
            Self::Status(_) => self.code() >= 500,
            Self::Request(_) | Self::Name { .. } | Self::Config(_) => false,
            Self::Transport(_)
            | Self::TimedOut { .. }
            | Self::Decode { .. }
            | Self::TooLarge { .. }
            | Self::NoRoom(_) => true,
        }
    }

    /// Seconds after which the server allows a retry.
    pub fn retry_after_seconds(&self) -> Option<i32> {
        match self {
            Self::Status(status) => status
                .details
                .as_ref()
                .and_then(|details| details.retry_after_seconds),
            _ => None,
        }
    }

    /// The message with its causes, for logs and conditions.
    pub fn chain(&self) -> String {
        machinery_meta::error_chain::error_chain(self)
    }
}
