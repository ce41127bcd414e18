//! Lists that are answered, by resource, under upstream's names.
//!
//! Memory is what lists are read from, as from upstream's watch cache, and so are they labelled: nothing is counted as tested
//! by a selector then, and no index has a name.

use super::families::Families;
use apiserver_registry::ResourceRow;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts};
use std::collections::HashSet;
use std::sync::Arc;

const BY_INDEX: [&str; 4] = ["group", "resource", "storage", "index"];
const BY_STORAGE: [&str; 3] = ["group", "resource", "storage"];
const STORAGE: &str = "watchcache";
/// Resources that are counted; those of kinds which were defined and deleted again stay among them.
const MAX_RESOURCES: usize = 5_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct ListMetrics {
    lists: IntCounterVec,
    fetched: IntCounterVec,
    evaluated: IntCounterVec,
    returned: IntCounterVec,
    known: Mutex<HashSet<[String; 2]>>,
}

impl ListMetrics {
    pub(super) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let options = Opts::new(format!("apiserver_storage_list_{name}"), help);
            families.vector(IntCounterVec::new(options, labels)?)
        };
        let metrics = Arc::new(Self {
            lists: counter(
                "total",
                "[ALPHA] Number of LIST requests served from storage",
                &BY_INDEX,
            )?,
            fetched: counter(
                "fetched_objects_total",
                "[ALPHA] Number of objects read from storage in the course of serving a LIST request",
                &BY_INDEX,
            )?,
            evaluated: counter(
                "evaluated_objects_total",
                "[ALPHA] Number of objects tested in the course of serving a LIST request from storage",
                &BY_STORAGE,
            )?,
            returned: counter(
                "returned_objects_total",
                "[ALPHA] Number of objects returned for a LIST request from storage",
                &BY_STORAGE,
            )?,
            known: Mutex::default(),
        });
        let own = Arc::clone(&metrics);
        families.on_reset(move || own.known.lock().clear());
        Ok(metrics)
    }

    /// Counts a list; nothing beyond [`MAX_RESOURCES`].
    pub(crate) fn listed(&self, row: &ResourceRow, fetched: usize, returned: usize) {
        let (group, resource) = (row.gvk.group.as_str(), row.plural.as_str());
        {
            let labels = [group.to_owned(), resource.to_owned()];
            let mut known = self.known.lock();
            if !known.contains(&labels) {
                if known.len() >= MAX_RESOURCES {
                    return;
                }
                known.insert(labels);
            }
        }
        let by_storage = [group, resource, STORAGE];
        let by_index = [group, resource, STORAGE, ""];
        self.lists.with_label_values(&by_index).inc();
        self.fetched.with_label_values(&by_index).inc_by(fetched as u64);
        self.evaluated.with_label_values(&by_storage).inc_by(0);
        self.returned
            .with_label_values(&by_storage)
            .inc_by(returned as u64);
    }
}
