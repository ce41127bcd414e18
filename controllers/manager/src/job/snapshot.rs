//! A Job with its pods at one moment.

use super::backoff::Backoff;
use crate::views::{JobView, PodView};
use jiff::Timestamp;
use machinery_client::Object;
use std::sync::Arc;

pub(super) type PodRef = Arc<Object<PodView>>;

/// The base of a plan.
pub(super) struct Snapshot {
    pub(super) job: Arc<Object<JobView>>,
    pub(super) pods: Vec<PodRef>,
    /// True once everything requested earlier has been seen.
    pub(super) settled: bool,
    pub(super) now: Timestamp,
    /// State that the round before has left.
    pub(super) backoff: Option<Backoff>,
}
