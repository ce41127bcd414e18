//! Errors of starting a cluster.

/// Failed step and its cause.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("opening storage")]
    Storage(#[from] apiserver_storage::StorageError),
    #[error("starting the API server")]
    Server(#[from] apiserver_server::ServerError),
    /// Metrics of a component cannot be served.
    #[error("metrics of the scheduler: {0}")]
    Metrics(String),
}
