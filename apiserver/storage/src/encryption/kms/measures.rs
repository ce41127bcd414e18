//! Counts of plugins, by upstream's names of metrics (`apiserver_envelope_encryption_*`).

use super::envelope::hash_of_id;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds in seconds of the groups that durations of calls are counted in: 100 µs, doubled 19 times.
pub const CALL_BOUNDS: usize = 20;
const FIRST_BOUND_SECONDS: f64 = 1e-4;
/// Keys that are counted at most; the one that was not used for longest goes.
const MAX_KEY_IDS: usize = 100;

/// Durations of calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallDurations {
    /// No longer than each bound, cumulative.
    pub within: [u64; CALL_BOUNDS],
    pub count: u64,
    pub seconds: f64,
}

/// Uses of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyUse {
    pub count: u64,
    /// Milliseconds since 1970 of the last one.
    pub last: i64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Default)]
pub struct KmsCounts {
    /// By `from_storage` or `to_storage`, provider and hash of the key's id.
    pub key_ids: BTreeMap<(&'static str, String, String), KeyUse>,
    /// Milliseconds since 1970 at which a plugin last named a key its own, by provider and hash.
    pub status_key_ids: BTreeMap<(String, String), i64>,
    /// By provider and `empty` or `too_long`.
    pub invalid_key_ids: BTreeMap<(String, &'static str), u64>,
    /// Decrypted keys that are kept, by provider.
    pub kept: BTreeMap<String, usize>,
    /// By provider, method and code.
    pub calls: BTreeMap<(String, &'static str, String), CallDurations>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::encryption) struct KmsMeasures(Mutex<KmsCounts>);

pub(super) const FROM: &str = "from_storage";
pub(super) const TO: &str = "to_storage";

impl CallDurations {
    /// The bound of a group, in seconds.
    pub fn bound(at: usize) -> f64 {
        FIRST_BOUND_SECONDS * 2_f64.powi(i32::try_from(at).unwrap_or(i32::MAX))
    }
}

impl KmsMeasures {
    pub(super) fn called(&self, provider: &str, method: &'static str, code: &str, took: Duration) {
        let mut own = self.0.lock();
        let key = (provider.to_owned(), method, code.to_owned());
        let durations = own.calls.entry(key).or_default();
        let seconds = took.as_secs_f64();
        for (at, within) in durations.within.iter_mut().enumerate() {
            *within += u64::from(seconds <= CallDurations::bound(at));
        }
        durations.count += 1;
        durations.seconds += seconds;
    }

    pub(super) fn used(&self, kind: &'static str, provider: &str, key_id: &str, now: i64) {
        let mut own = self.0.lock();
        let key = (kind, provider.to_owned(), hash_of_id(key_id));
        let used = own.key_ids.entry(key).or_default();
        used.count += 1;
        used.last = now;
        if own.key_ids.len() > MAX_KEY_IDS {
            let oldest = own.key_ids.iter().min_by_key(|(_, used)| used.last);
            let oldest = oldest.map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                own.key_ids.remove(&oldest);
            }
        }
    }

    pub(super) fn named(&self, provider: &str, key_id: &str, now: i64) {
        let mut own = self.0.lock();
        own.status_key_ids
            .insert((provider.to_owned(), hash_of_id(key_id)), now);
        if own.status_key_ids.len() > MAX_KEY_IDS {
            let oldest = own.status_key_ids.iter().min_by_key(|(_, last)| **last);
            let oldest = oldest.map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                own.status_key_ids.remove(&oldest);
            }
        }
    }

    pub(super) fn misnamed(&self, provider: &str, code: &'static str) {
        let mut own = self.0.lock();
        *own.invalid_key_ids
            .entry((provider.to_owned(), code))
            .or_default() += 1;
    }

    pub(super) fn kept(&self, provider: &str, count: usize) {
        self.0.lock().kept.insert(provider.to_owned(), count);
    }

    pub(in crate::encryption) fn read(&self) -> KmsCounts {
        self.0.lock().clone()
    }
}
