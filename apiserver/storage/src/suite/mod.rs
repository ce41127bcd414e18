//! Requirements on every backend. Each case gets a store and keys of its own; `all` runs them in turn.

mod reads;
mod upkeep;
mod watches;
mod writes;

use crate::{
    Expect, Key, Op, Prefix, RangeOptions, ReadAt, Record, Revision, Storage, StorageError, WatchCursor,
    WatchFilter, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// A store to be tested, and what it does differently by design.
pub(crate) struct Subject {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) runtime: Runtime,
    /// The changes of a group share a revision (etcd).
    pub(crate) one_revision_per_group: bool,
}

/// An object as the suite stores it: its text is its value, its node is a selectable field.
pub(crate) fn record(name: &str, node: &str, value: &str) -> Record {
    let head = format!("name={name};node={node};");
    let parts = [
        Bytes::from_static(b"meta;"),
        Bytes::from(head),
        Bytes::copy_from_slice(value.as_bytes()),
    ];
    let header = ObjectHeader {
        key: ObjectKey::new("ns", name),
        fields: machinery_meta::Fields::from([("spec.nodeName", node)]),
        ..ObjectHeader::default()
    };
    Record {
        parts,
        fingerprint: 42,
        header: Arc::new(header),
    }
}

/// The value of an object of [`record`].
pub(crate) fn value(record: &Record) -> String {
    String::from_utf8_lossy(&record.parts[2]).into_owned()
}

/// Keys of one case.
struct KeySpace<'a> {
    subject: &'a Subject,
    case: &'static str,
}

pub(crate) async fn all(subject: &Subject) {
    let place = |case| KeySpace { subject, case };
    writes::expectations(place("expectations")).await;
    writes::groups(place("groups")).await;
    reads::paging(place("paging")).await;
    reads::past_states(place("past")).await;
    reads::recaching(place("recaching")).await;
    watches::watching(place("watching")).await;
    watches::interests(place("interests")).await;
    writes::racing(place("racing")).await;
    watches::ordering(place("ordering")).await;
    upkeep::expiry(place("expiry")).await;
    writes::limits(place("limits")).await;
    upkeep::compaction(place("compaction")).await;
    watches::closing(place("closing")).await;
}

impl KeySpace<'_> {
    fn storage(&self) -> &Arc<dyn Storage> {
        &self.subject.storage
    }

    fn key(&self, name: &str) -> Key {
        Key::parse(&format!("/registry/{}/{name}", self.case)).unwrap()
    }

    fn prefix(&self) -> Prefix {
        Prefix::parse(&format!("/registry/{}/", self.case)).unwrap()
    }

    fn write(&self, name: &str, expect: Expect, value: Option<&str>) -> Write {
        let op = match value {
            Some(value) => Op::Put {
                record: record(name, "n1", value),
                ttl: None,
            },
            None => Op::Delete,
        };
        Write {
            key: self.key(name),
            expect,
            op,
        }
    }

    /// Writes without asking what was there; the revision.
    async fn put(&self, name: &str, value: &str) -> Revision {
        let written = self
            .storage()
            .commit(vec![self.write(name, Expect::Any, Some(value))])
            .await
            .unwrap();
        written[0].revision
    }

    async fn remove(&self, name: &str) -> Revision {
        self.storage()
            .commit(vec![self.write(name, Expect::Present, None)])
            .await
            .unwrap()[0]
            .revision
    }

    async fn get(&self, name: &str) -> Option<String> {
        let found = self.storage().get(&self.key(name), ReadAt::Latest).await.unwrap();
        found.entry.map(|entry| value(&entry.record))
    }

    async fn list(&self, options: RangeOptions) -> Result<(Vec<String>, u64), StorageError> {
        let page = self.storage().range(&self.prefix(), &options).await?;
        Ok((
            page.entries.iter().map(|entry| value(&entry.record)).collect(),
            page.remaining,
        ))
    }

    async fn watch(&self, after: Revision) -> Box<dyn WatchCursor> {
        self.watch_for(WatchFilter::prefix(self.prefix()), after).await
    }

    async fn watch_for(&self, interest: WatchFilter, after: Revision) -> Box<dyn WatchCursor> {
        self.storage()
            .watch(WatchRequest {
                interests: vec![interest],
                after,
            })
            .await
            .unwrap()
    }

    async fn current(&self) -> Revision {
        self.storage().current_revision().await.unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, LogStorage};
    use machinery_runtime::Simulation;

    fn subject(storage: LogStorage, runtime: Runtime) -> Subject {
        Subject {
            storage: Arc::new(storage),
            runtime,
            one_revision_per_group: false,
        }
    }

    #[tokio::test]
    async fn storage_suite_on_memory_log() {
        let runtime = Runtime::real();
        all(&subject(LogStorage::memory(&runtime).await.unwrap(), runtime)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn storage_suite_on_disk_log() {
        let (runtime, dir) = (Runtime::real(), tempfile::tempdir().unwrap());
        let (storage, _) = LogStorage::open(&runtime, LogOptions::new(dir.path()))
            .await
            .unwrap();
        all(&subject(storage, runtime)).await;
    }

    /// The suite with a history of nothing, so that every catching up reads the log.
    #[test]
    fn storage_suite_on_simulated_log() {
        for seed in 0..4 {
            let simulation = Simulation::new(seed);
            let runtime = simulation.runtime();
            simulation.run(async move {
                let small = LogOptions {
                    history_bytes: 0,
                    segment_bytes: 4 << 10,
                    checkpoint_bytes: 4 << 10,
                    reserve_bytes: 64 << 10,
                    retention: Duration::ZERO,
                    ..LogOptions::new("/data")
                };
                let (storage, _) = LogStorage::open(&runtime, small).await.unwrap();
                all(&subject(storage, runtime)).await;
            });
        }
    }
}
