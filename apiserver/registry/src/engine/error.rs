//! Failures of verbs. Refusals that HTTP alone has (of a method, a media type) are in `endpoints::ApiError`; only
//! `endpoints::status` makes a `Status` of either.

use machinery_meta::{FieldError, GroupKind, GroupResource, Revision};

/// Every way a request to the registry can end other than well.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistryError {
    #[error("{resource} {name:?} not found")]
    NotFound { resource: GroupResource, name: String },
    /// Nothing is served under this address.
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    #[error("{resource} {name:?} already exists")]
    AlreadyExists {
        resource: GroupResource,
        name: String,
        deleting: bool,
    },
    /// Every generated name was taken.
    #[error("no free name could be generated for {resource} {name:?}")]
    GeneratedNamesTaken { resource: GroupResource, name: String },
    #[error("operation cannot be fulfilled on {resource} {name:?}: {detail}")]
    Conflict {
        resource: GroupResource,
        name: String,
        detail: String,
    },
    /// Fields of a configuration belong to other managers.
    #[error("{message}")]
    ApplyConflict { message: String, causes: Vec<Cause> },
    #[error("{kind} {name:?} is invalid")]
    Invalid {
        kind: GroupKind,
        name: String,
        errors: Vec<FieldError>,
    },
    #[error("{0}")]
    BadRequest(String),
    /// Refused by authorization or admission, in its words.
    #[error("{resource} {name:?} is forbidden: {detail}")]
    Forbidden {
        resource: GroupResource,
        name: String,
        detail: String,
        causes: Vec<Cause>,
    },
    /// A continue token or a revision older than the history; with a fresh token where a list can go on.
    #[error("{message}")]
    Expired {
        message: String,
        fresh_continue: Option<String>,
    },
    #[error("request entity too large: limit is {0}")]
    TooLarge(usize),
    #[error("{message}")]
    TooManyRequests {
        message: String,
        seconds: u32,
        causes: Vec<Cause>,
    },
    #[error("revision {requested} is beyond {current}")]
    TooLargeRevision { requested: Revision, current: Revision },
    #[error("timeout: {0}")]
    Timeout(String),
    #[error("the {verb} operation against {resource} could not be completed at this time")]
    ServerTimeout {
        resource: GroupResource,
        verb: String,
        seconds: u32,
    },
    #[error("{0}")]
    Unavailable(String),
    /// A patch with more operations than are allowed, or a body that requests more memory or steps.
    #[error("{0}")]
    TooLargePatch(String),
    /// A patch that does not fit the object; upstream keeps the cause to itself.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable(String),
    #[error("{0}")]
    Internal(String),
    /// A stored object that cannot be decrypted, in upstream's words; answered as [`Self::Internal`] is.
    #[error("{0}")]
    Unreadable(String),
    /// Stored objects of a list that cannot be read, each with its key.
    #[error("{message}")]
    StorageRead {
        resource: GroupResource,
        message: String,
        causes: Vec<Cause>,
    },
    /// A failure upstream has no reason for: 500 with these words and nothing else.
    #[error("{0}")]
    Unclassified(String),
    /// A webhook's own answer, as it came.
    #[error("{}", .0.message)]
    Denied(Box<DeniedStatus>),
}

/// The `Status` with which a webhook denies a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeniedStatus {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub details: Option<DeniedDetails>,
}

/// Its `details`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeniedDetails {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One entry of a `Status`' causes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// Upstream's message when the revision changed between read and write.
pub const OPTIMISTIC_LOCK_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl RegistryError {
    pub fn forbidden(resource: &GroupResource, name: &str, detail: impl Into<String>) -> Self {
        Self::Forbidden {
            resource: resource.clone(),
            name: name.to_owned(),
            detail: detail.into(),
            causes: Vec::new(),
        }
    }

    /// The error for too much work under way: the client is to come back in a second.
    pub fn busy() -> Self {
        Self::TooManyRequests {
            message: "Too many requests, please try again later.".to_owned(),
            seconds: 1,
            causes: Vec::new(),
        }
    }

    pub fn conflict(resource: &GroupResource, name: &str, detail: impl Into<String>) -> Self {
        Self::Conflict {
            resource: resource.clone(),
            name: name.to_owned(),
            detail: detail.into(),
        }
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::NotFound {
            resource: resource.clone(),
            name: name.to_owned(),
        }
    }

    /// The answer of an options kind (`ListOptions.meta.k8s.io "" is invalid: …`).
    pub fn invalid_options(kind: &str, errors: Vec<FieldError>) -> Self {
        let kind = GroupKind {
            group: "meta.k8s.io".into(),
            kind: kind.into(),
        };
        Self::Invalid {
            kind,
            name: String::new(),
            errors,
        }
    }

    /// The revision moved: an unconditional change may be tried again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Stored objects cannot be read, until a key or a deletion mends it.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable(_) | Self::StorageRead { .. })
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
