//! Usage of the node, its pods and their containers, for every page that shows it.
//!
//! [`listing`] asks the runtime for the pods that run. [`figures`] joins them with the runtime's figures of containers, for
//! evictions, `/metrics/resource` and `/stats/summary`; [`rows`] reads the groups' own files, for `/metrics/cadvisor` and
//! what the summary has beyond. Each is [`shared`]: read once for all clients that ask at a time, and at a rate that keeps a
//! client in a loop from taking the machine.

pub(crate) mod figures;
pub(crate) mod listing;
pub(crate) mod rows;
pub(crate) mod shared;

use std::sync::Arc;

use node_sys::blocking::BlockingLane;

use crate::managers::ManagerContext;
use figures::Figures;
use listing::RuntimeCounts;
use rows::Reading;
use shared::Shared;

/// Figures that the pages share.
#[derive(Debug)]
pub(super) struct Usage {
    figures: Shared<Figures>,
    rows: Shared<Reading>,
    lane: BlockingLane,
    counts: Shared<RuntimeCounts>,
}

impl Usage {
    pub(super) fn new(context: &ManagerContext) -> Self {
        Self {
            figures: Shared::new(context.runtime.clone()),
            rows: Shared::new(context.runtime.clone()),
            lane: rows::lane(context),
            counts: Shared::new(context.runtime.clone()),
        }
    }

    /// Figures of the runtime, at most a moment old.
    pub(super) async fn figures(&self, context: &ManagerContext) -> Result<Arc<Figures>, String> {
        let own = context.clone();
        self.figures.get(async move || figures::gather(&own).await).await
    }

    /// Figures of the groups, at most a moment old.
    pub(super) async fn rows(&self, context: &ManagerContext) -> Result<Arc<Reading>, String> {
        let (own, lane) = (context.clone(), self.lane.clone());
        self.rows.get(async move || rows::read(&own, &lane).await).await
    }

    /// Numbers of what the runtime has, at most a moment old.
    pub(super) async fn counts(&self, context: &ManagerContext) -> Result<Arc<RuntimeCounts>, String> {
        let cri = context.workers.control.cri.clone();
        let read = async move || listing::counts(&cri).await.map_err(|error| error.message());
        self.counts.get(read).await
    }
}
