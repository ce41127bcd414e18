//! Outcomes of calls, for the server's metrics.

use crate::{Operation, Step};
use std::fmt;
use std::time::Duration;

/// A call that came to its end.
#[derive(Debug, Clone, Copy)]
pub struct WebhookCall<'a> {
    pub webhook: &'a str,
    pub step: Step,
    pub operation: Operation,
}

/// Takes outcomes of calls.
pub trait WebhookObserver: fmt::Debug + Send + Sync {
    /// The request was let through or rejected, with this code of HTTP.
    fn called(&self, call: WebhookCall<'_>, took: Duration, rejected: bool, code: u16);

    /// A rejection; `error_type` is upstream's.
    fn rejected(&self, call: WebhookCall<'_>, error_type: &'static str, code: u16);

    /// A webhook could not be called, and the request passed.
    fn failed_open(&self, call: WebhookCall<'_>);
}
