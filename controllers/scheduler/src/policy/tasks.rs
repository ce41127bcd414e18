//! Tasks around the policy.

use super::metrics_api;
use super::reporter::{self, Report};
use crate::usage::Sample;
use machinery_client::Client;
use machinery_runtime::Runtime;
use tokio::sync::{mpsc, watch};

/// Their ends in the driver.
pub(crate) struct PolicyTasks {
    /// True while usage is to be fetched.
    wants_usage: watch::Sender<bool>,
    pub(crate) samples: mpsc::Receiver<Vec<Sample>>,
    reports: watch::Sender<Option<Report>>,
}

impl PolicyTasks {
    pub(crate) fn start(client: &Client, runtime: &Runtime) -> Self {
        let (wants_usage, wanted) = watch::channel(false);
        let (send, samples) = mpsc::channel(1);
        let following = metrics_api::follow(client.clone(), runtime.clone(), wanted, send);
        runtime.spawn("scheduler usage", following).detach();
        let (reports, last) = watch::channel(None);
        let keeping = reporter::keep(client.clone(), runtime.clone(), last);
        runtime.spawn("scheduler policy", keeping).detach();
        Self {
            wants_usage,
            samples,
            reports,
        }
    }

    pub(crate) fn want_usage(&self, wanted: bool) {
        self.wants_usage.send_replace(wanted);
    }

    /// Has a report written where it differs from the last.
    pub(crate) fn report(&self, report: Option<Report>) {
        self.reports.send_if_modified(|last| {
            let differs = *last != report;
            *last = report;
            differs
        });
    }
}
