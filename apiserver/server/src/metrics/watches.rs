//! Events sent to watchers, by resource, under upstream's names.

use super::families::Families;
use apiserver_endpoints::WatchEvents;
use apiserver_registry::ResourceRow;
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use std::collections::HashSet;
use std::sync::Arc;

const LABELS: [&str; 3] = ["group", "version", "resource"];
/// Resources that are counted; those of kinds which were defined and deleted again stay among them.
const MAX_RESOURCES: usize = 5_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct WatchMetrics {
    events: IntCounterVec,
    sizes: HistogramVec,
    known: Mutex<HashSet<[String; 3]>>,
}

/// Metrics of one resource.
struct Sent {
    events: IntCounter,
    sizes: Histogram,
}

impl WatchMetrics {
    pub(super) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let events = Opts::new(
            "apiserver_watch_events_total",
            "[BETA] Number of events sent in watch clients",
        );
        let sizes = HistogramOpts::new(
            "apiserver_watch_events_sizes",
            "[BETA] Watch event size distribution in bytes",
        );
        // 1 KiB to 128 KiB.
        let sizes = sizes.buckets(prometheus::exponential_buckets(1024.0, 2.0, 8)?);
        let metrics = Arc::new(Self {
            events: families.vector(IntCounterVec::new(events, &LABELS)?)?,
            sizes: families.vector(HistogramVec::new(sizes, &LABELS)?)?,
            known: Mutex::default(),
        });
        let own = Arc::clone(&metrics);
        families.on_reset(move || own.known.lock().clear());
        Ok(metrics)
    }

    /// The metrics of a resource, for one watch; `None` beyond [`MAX_RESOURCES`].
    pub(crate) fn of(&self, row: &ResourceRow) -> Option<Arc<dyn WatchEvents>> {
        let labels = [&row.gvk.group, &row.gvk.version, &row.plural].map(String::clone);
        let mut known = self.known.lock();
        if !known.contains(&labels) && known.len() >= MAX_RESOURCES {
            return None;
        }
        let sent = Sent {
            events: self.events.with_label_values(&labels),
            sizes: self.sizes.with_label_values(&labels),
        };
        known.insert(labels);
        Some(Arc::new(sent))
    }
}

impl WatchEvents for Sent {
    #[expect(clippy::cast_precision_loss, reason = "events are small")]
    fn sent(&self, bytes: usize) {
        self.events.inc();
        self.sizes.observe(bytes as f64);
    }
}
