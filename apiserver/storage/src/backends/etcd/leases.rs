//! Times to live as etcd leases. One lease serves many keys of about the same end, as upstream's lease manager does.

use super::remote::Remote;
use crate::StorageError;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::time::Duration;

/// The lease given out last, while it may be given out again.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Option<Current>>);

#[derive(Debug, Clone, Copy)]
struct Current {
    id: i64,
    ttl: Duration,
    until: Duration,
    keys: u32,
}

/// A lease is shared for this part of its time, a key lives that much longer at most.
const SHARED_PART: u32 = 20;
/// Longest time for which a lease is shared.
const SHARED_AT_MOST: Duration = Duration::from_secs(60);
/// Nor by more keys, as deleting them is one change in etcd.
const KEYS_PER_LEASE: u32 = 1000;

impl Leases {
    pub(super) async fn lease(
        &self,
        runtime: &Runtime,
        remote: &Remote,
        ttl: Duration,
    ) -> Result<i64, StorageError> {
        let now = runtime.monotonic();
        if let Some(current) = self.0.lock().as_mut().filter(|current| current.serves(ttl, now)) {
            current.keys += 1;
            return Ok(current.id);
        }
        let shared = (ttl / SHARED_PART).min(SHARED_AT_MOST);
        let seconds = i64::try_from((ttl + shared).as_secs().max(1)).unwrap_or(i64::MAX);
        let granted = remote
            .waiting(remote.client.lease_client().grant(seconds, None))
            .await?;
        let current = Current {
            id: granted.id(),
            ttl,
            until: now + shared,
            keys: 1,
        };
        *self.0.lock() = Some(current);
        Ok(current.id)
    }
}

impl Current {
    fn serves(&self, ttl: Duration, now: Duration) -> bool {
        self.ttl == ttl && now < self.until && self.keys < KEYS_PER_LEASE
    }
}
