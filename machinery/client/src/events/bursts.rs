//! Events about one object at once, as client-go's spam filter bounds them.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

use super::ObjectReference;

/// Events of one object at once, and how long until there is room for one more.
const OBJECT_BURST: u32 = 25;
const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// Objects whose events are counted.
const MAX_OBJECTS: usize = 4_096;

/// Digest of something that takes part in events: what is kept of it does not grow with it.
pub(super) type Identity = [u8; 32];

/// Digest of these parts.
pub(super) fn identity<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Identity {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Tokens of objects.
#[derive(Default)]
pub(super) struct Bursts {
    buckets: BTreeMap<Identity, Bucket>,
}

struct Bucket {
    tokens: u32,
    refilled: Duration,
}

impl Bursts {
    /// Takes a token of the object's bucket; false where it is empty.
    pub(super) fn take(&mut self, about: &ObjectReference, now: Duration) -> bool {
        if self.buckets.len() >= MAX_OBJECTS {
            self.buckets
                .retain(|_, bucket| bucket.tokens_at(now) < OBJECT_BURST);
        }
        if self.buckets.len() >= MAX_OBJECTS {
            self.buckets.clear();
        }
        let full = || Bucket {
            tokens: OBJECT_BURST,
            refilled: now,
        };
        let bucket = self.buckets.entry(about.identity()).or_insert_with(full);
        let tokens = bucket.tokens_at(now);
        if tokens == 0 {
            return false;
        }
        if tokens != bucket.tokens {
            bucket.refilled = now;
        }
        bucket.tokens = tokens - 1;
        true
    }
}

impl Bucket {
    fn tokens_at(&self, now: Duration) -> u32 {
        let refills = now.saturating_sub(self.refilled).as_secs() / OBJECT_REFILL.as_secs();
        self.tokens
            .saturating_add(u32::try_from(refills).unwrap_or(OBJECT_BURST))
            .min(OBJECT_BURST)
    }
}

impl ObjectReference {
    /// Digest of the object, whatever its version.
    pub(super) fn identity(&self) -> Identity {
        let parts: [&str; 6] = [
            &self.api_version,
            &self.kind,
            &self.key.namespace,
            &self.key.name,
            &self.uid,
            &self.field_path,
        ];
        identity(parts.map(str::as_bytes))
    }
}
