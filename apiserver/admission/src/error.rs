//! Reasons for which admission refuses a write.

use crate::policies::Denial;
use crate::rejection::Rejection;
use apiserver_registry::RegistryError;
use machinery_meta::reader::ReadError;
use machinery_meta::{FieldError, GroupResource};

/// Each has one HTTP answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AdmissionError {
    /// The words behind `pods "x" is forbidden: `.
    #[error("{0}")]
    Forbidden(String),
    /// The same with a cause by which clients know it.
    #[error("{why}")]
    ForbiddenFor { why: String, cause: String },
    /// The object's fields are wrong.
    #[error("the object is invalid")]
    Invalid(Vec<FieldError>),
    /// The namespace is going away; the cause shows it to a client.
    #[error("unable to create new content in namespace {0} because it is being terminated")]
    NamespaceTerminating(String),
    #[error("{resource} {name:?} not found")]
    NotFound { resource: GroupResource, name: String },
    #[error("{0}")]
    BadRequest(String),
    /// The whole message of the answer with 429.
    #[error("{0}")]
    TooManyRequests(String),
    /// The request's owner has too much under way; another attempt in a moment may succeed.
    #[error("too much is under way")]
    Busy,
    /// Others changed this object, which the decision is written to, again and again.
    #[error("{resource} {name:?} has changed")]
    Conflict { resource: GroupResource, name: String },
    /// The whole message of the answer with 500.
    #[error("{0}")]
    Unclassified(String),
    /// The objects that the decision depends on are not consistent yet; another attempt may succeed.
    #[error("{0}")]
    Internal(String),
    /// The request's time is over.
    #[error("{0}")]
    Timeout(String),
    /// A webhook's own answer.
    #[error("{}", .0.message)]
    Rejected(Box<Rejection>),
    /// Policies refuse the request.
    #[error("{}", .0.message)]
    Denied(Box<Denial>),
    #[error(transparent)]
    Reading(#[from] ReadError),
}

impl AdmissionError {
    /// Reports whether it is about the request itself and not about the policy or webhook at hand, so that no failure policy
    /// decides about it.
    pub(crate) fn is_of_request(&self) -> bool {
        matches!(self, Self::Busy | Self::Timeout(_))
    }

    /// An error of the registry in admission: those that are about the request stay what they are.
    pub fn of_registry(error: RegistryError) -> Self {
        match error {
            RegistryError::TooManyRequests { .. } => Self::Busy,
            RegistryError::Timeout(message) => Self::Timeout(message),
            other => Self::Internal(other.to_string()),
        }
    }

    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::Forbidden(why.into())
    }
}
