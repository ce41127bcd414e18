//! Flags that bound what is stored.

use apiserver_server::{ExpiryBounds, SYSTEM_NAMESPACES};
use apiserver_storage::Quota;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BoundArguments {
    /// Maximum number of events of a namespace; beyond it the oldest expire early; 0 sets no bound
    #[arg(long, default_value_t = ExpiryBounds::default().objects)]
    pub(crate) max_events_per_namespace: u64,
    /// Bytes of memory of the events that one namespace keeps; of more the large ones and then the oldest ones expire before their time. 0 sets no bound
    #[arg(long, default_value_t = ExpiryBounds::default().bytes)]
    pub(crate) max_event_bytes_per_namespace: u64,
    /// Bytes of memory that all stored objects together may take; beyond it only deletions and the system's own writes pass.
    /// By default half of the machine's memory. 0 sets no bound
    #[arg(long)]
    pub(crate) storage_quota_bytes: Option<u64>,
    /// Bytes of memory that the stored objects of one namespace may take, but for those of the system. By default a quarter
    /// of --storage-quota-bytes. 0 sets no bound
    #[arg(long)]
    pub(crate) storage_quota_bytes_per_namespace: Option<u64>,
}

/// The quota of a machine whose memory is not known; etcd's default.
const UNKNOWN_MACHINE: u64 = 2 << 30;

impl BoundArguments {
    pub(crate) fn events_per_namespace(&self) -> ExpiryBounds {
        ExpiryBounds {
            objects: self.max_events_per_namespace,
            bytes: self.max_event_bytes_per_namespace,
        }
    }

    /// Bounds of what is stored, on a machine of so many bytes of memory; 0 where that is unknown.
    pub(crate) fn quota(&self, memory_bytes: u64) -> Quota {
        let of_machine = match memory_bytes {
            0 => UNKNOWN_MACHINE,
            known => known / 2,
        };
        let store_bytes = self.storage_quota_bytes.unwrap_or(of_machine);
        Quota {
            store_bytes,
            namespace_bytes: self.storage_quota_bytes_per_namespace.unwrap_or(store_bytes / 4),
            system_namespaces: SYSTEM_NAMESPACES.map(Box::from).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bounds: BoundArguments,
    }

    #[track_caller]
    fn check(flags: &[&str], memory_bytes: u64, expected: (u64, u64)) {
        let line = Line::parse_from(["knarr"].iter().chain(flags));
        let quota = line.bounds.quota(memory_bytes);
        assert_eq!((quota.store_bytes, quota.namespace_bytes), expected);
    }

    #[test]
    fn storage_quota_is_a_part_of_the_memory() {
        check(&[], 8 << 30, (4 << 30, 1 << 30));
        check(&[], 0, (2 << 30, 512 << 20));
        check(&["--storage-quota-bytes=4000"], 8 << 30, (4000, 1000));
        check(&["--storage-quota-bytes=0"], 8 << 30, (0, 0));
        check(&["--storage-quota-bytes-per-namespace=7"], 8 << 30, (4 << 30, 7));
    }
}
