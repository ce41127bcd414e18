//! Failures of requests: the registry's, and those of HTTP, which a registry never sees.

use apiserver_registry::RegistryError;
use machinery_meta::GroupResource;

/// Every way in which a request can end other than well.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The path exists, the method on it does not.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("only the following media types are accepted: {}", .0.join(", "))]
    NotAcceptable(Vec<String>),
    /// The view that the client takes is of a list and the answer is none, or the other way round.
    #[error("you requested {view}, but the requested object is {found}")]
    NotAcceptableView { view: &'static str, found: String },
    /// No handler of the address makes any type the client takes.
    #[error("406: Not Acceptable\n\nAvailable representations: {}", .0.join(", "))]
    NoRepresentation(Vec<String>),
    /// No handler of the address takes the body's type.
    #[error("415: Unsupported Media Type")]
    NoConsumer,
    #[error("the body of the request was in an unknown format - accepted media types include: {}", .0.join(", "))]
    UnsupportedMediaType(Vec<String>),
    #[error("{0}")]
    Unauthorized(String),
    /// The body of a request stood still.
    #[error("the body of the request did not arrive in time")]
    SlowBody,
    /// Another server's answer, of which its code is passed on (upstream's `NewGenericServerResponse`).
    #[error("{resource} {name:?}: the server responded with the status code {code}")]
    Answered {
        code: u16,
        resource: GroupResource,
        name: String,
    },
}
