//! How many objects of a resource are stored and how large they are, as far as it is known: what a list is estimated by. A
//! figure is measured when a list asks for it and it is old; until then the last one counts.

use super::work_estimate::ObjectStats;
use apiserver_registry::Registry;
use apiserver_storage::{Prefix, RangeOptions};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A figure is measured again after this time.
const MEASURED_FOR: Duration = Duration::from_secs(10);
/// So many objects are looked at for their size.
const SAMPLE: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Measured {
    stats: Option<ObjectStats>,
    at: Duration,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct ObjectCounts {
    registry: Registry,
    runtime: Runtime,
    /// By the prefix of the resource's keys.
    measured: Arc<Mutex<HashMap<String, Measured>>>,
}

impl ObjectCounts {
    pub(super) fn new(registry: Registry, runtime: Runtime) -> Self {
        Self {
            registry,
            runtime,
            measured: Arc::default(),
        }
    }

    /// `None` where nothing is known: the resource is not served, or nobody has listed it before.
    pub(super) fn of(&self, group: &str, version: &str, resource: &str) -> Option<ObjectStats> {
        let store = self.registry.store(group, version, resource)?;
        let prefix = &store.row.stored.prefix;
        let now = self.runtime.monotonic();
        let mut measured = self.measured.lock();
        let known = measured.get(prefix.as_str()).copied();
        if known.is_none_or(|known| known.at + MEASURED_FOR <= now) {
            let stats = known.and_then(|known| known.stats);
            measured.insert(prefix.clone(), Measured { stats, at: now });
            let measuring = self.clone().measure(prefix.clone());
            self.runtime.spawn("object-counts", measuring).detach();
        }
        known?.stats
    }

    async fn measure(self, prefix: String) {
        let Ok(parsed) = Prefix::parse(&prefix) else {
            return;
        };
        let options = RangeOptions {
            limit: SAMPLE,
            ..RangeOptions::default()
        };
        let Ok(page) = self.registry.stored().range(&parsed, &options).await else {
            return;
        };
        let seen = page.entries.len() as u64;
        let bytes: u64 = page.entries.iter().map(|entry| entry.record.len() as u64).sum();
        let stats = ObjectStats {
            count: seen + page.remaining,
            average_bytes: bytes.checked_div(seen).unwrap_or(0),
        };
        if let Some(measured) = self.measured.lock().get_mut(&prefix) {
            measured.stats = Some(stats);
        }
    }
}
