//! Warnings and audit annotations of admission plugins, which go to the request that they speak of.

use crate::{AdmissionError, Remarks};
use apiserver_registry::RequestContext;
use apiserver_registry::context::LARGE_BODY_BYTES;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

/// See the module.
pub(crate) struct RequestRemarks<'a>(pub(crate) &'a RequestContext);

impl fmt::Debug for RequestRemarks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestRemarks").field(&self.0.audit_id).finish()
    }
}

#[async_trait]
impl Remarks for RequestRemarks<'_> {
    fn warn(&self, warning: String) {
        self.0.warnings.add(warning);
    }

    fn annotate(&self, key: String, value: String) {
        self.0.audit.add(key, value);
    }

    fn time_left(&self) -> Option<Duration> {
        let deadline = self.0.deadline?;
        Some(deadline.saturating_sub(self.0.runtime.monotonic()))
    }

    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError> {
        let turn = self.0.heavy_from(bytes, LARGE_BODY_BYTES).await;
        turn.map_err(AdmissionError::of_registry)
    }
}
