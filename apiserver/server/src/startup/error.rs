//! Failures of start-up steps.

/// A step that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("start-up step {step:?}: {message}")]
pub struct StartupError {
    pub step: &'static str,
    /// As the API would answer it, with everything that is wrong.
    pub message: String,
}
