//! Tasks around the policy.

use super::metrics_api;
use super::reporter::{self, Report};
use crate::usage::Sample;
use machinery_client::Client;
use machinery_runtime::{Runtime, Watched};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Their ends in the driver.
pub(crate) struct PolicyTasks {
    /// True while usage is to be fetched.
    wants_usage: Arc<Watched<bool>>,
    pub(crate) samples: mpsc::Receiver<Vec<Sample>>,
    reports: Arc<Watched<Option<Report>>>,
}

impl PolicyTasks {
    pub(crate) fn start(client: &Client, runtime: &Runtime) -> Self {
        let wants_usage = Arc::new(Watched::new(false));
        let (send, samples) = mpsc::channel(1);
        let following = metrics_api::follow(client.clone(), runtime.clone(), Arc::clone(&wants_usage), send);
        runtime.spawn("scheduler usage", following).detach();
        let reports = Arc::new(Watched::new(None));
        let keeping = reporter::keep(client.clone(), runtime.clone(), Arc::clone(&reports));
        runtime.spawn("scheduler policy", keeping).detach();
        Self {
            wants_usage,
            samples,
            reports,
        }
    }

    pub(crate) fn want_usage(&self, wanted: bool) {
        self.wants_usage.change(|own| {
            let differs = *own != wanted;
            *own = wanted;
            differs
        });
    }

    /// Writes a report where it differs from the last.
    pub(crate) fn report(&self, report: Option<Report>) {
        self.reports.change(|last| {
            let differs = *last != report;
            *last = report;
            differs
        });
    }
}
