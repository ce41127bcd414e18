//! The request's side of admission: what plugins say to the client and to the audit log beside their decision, and the time
//! that they have for it.

use crate::AdmissionError;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// See the module; the server fills it from the request.
#[async_trait]
pub trait Remarks: fmt::Debug + Send + Sync {
    /// Warns the client.
    fn warn(&self, warning: String);

    /// Adds an annotation to the request's audit event.
    fn annotate(&self, key: String, value: String);

    /// Time left for the request; `None` without a bound.
    fn time_left(&self) -> Option<Duration>;

    /// Says that work in proportion to so many bytes follows.
    ///
    /// # Errors
    /// There is no turn for it.
    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError>;
}

/// A request whose warnings and annotations are dropped.
#[derive(Debug, Clone, Copy)]
pub struct Unheard;

#[async_trait]
impl Remarks for Unheard {
    fn warn(&self, _: String) {}

    fn annotate(&self, _: String, _: String) {}

    fn time_left(&self) -> Option<Duration> {
        None
    }

    async fn heavy_from(&self, _: usize) -> Result<(), AdmissionError> {
        Ok(())
    }
}
