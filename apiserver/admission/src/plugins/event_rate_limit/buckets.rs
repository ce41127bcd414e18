//! Token buckets by key, of which the least recently used is forgotten when there are too many.

use super::Limit;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Buckets of one limit.
pub(super) struct Buckets {
    tokens_per_second: f64,
    burst: f64,
    most: usize,
    /// Keys are text of clients, of any length: their hashes are kept, under a secret of the process.
    secret: RandomState,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buckets: HashMap<u64, Bucket>,
    /// Keys by their last use.
    order: BTreeMap<u64, u64>,
    uses: u64,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    /// The time as of which there are so many.
    as_of: Duration,
    used: u64,
}

impl Buckets {
    pub(super) fn new(limit: &Limit) -> Self {
        Self {
            tokens_per_second: f64::from(limit.qps),
            burst: f64::from(limit.burst),
            most: limit.buckets(),
            secret: RandomState::new(),
            state: Mutex::default(),
        }
    }

    /// Takes a token of the key's bucket; `false` where there is none.
    pub(super) fn take(&self, key: &str, now: Duration) -> bool {
        let key = self.secret.hash_one(key);
        let mut state = self.state.lock();
        let full = Bucket {
            tokens: self.burst,
            as_of: now,
            used: 0,
        };
        let mut bucket = state.buckets.get(&key).copied().unwrap_or(full);
        let passed = now.saturating_sub(bucket.as_of).as_secs_f64();
        let tokens = (bucket.tokens + passed * self.tokens_per_second).min(self.burst);
        let is_taken = tokens >= 1.0;
        bucket.tokens = if is_taken { tokens - 1.0 } else { tokens };
        bucket.as_of = now;
        state.put(key, bucket, self.most);
        is_taken
    }
}

impl State {
    fn put(&mut self, key: u64, bucket: Bucket, most: usize) {
        self.uses += 1;
        let bucket = Bucket {
            used: self.uses,
            ..bucket
        };
        if let Some(before) = self.buckets.insert(key, bucket) {
            self.order.remove(&before.used);
        }
        self.order.insert(self.uses, key);
        if self.buckets.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.buckets.remove(&oldest);
        }
    }
}
