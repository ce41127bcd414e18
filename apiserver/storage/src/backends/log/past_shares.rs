//! Shares of the kept past: bytes of changes since the compact revision, by namespace.
//!
//! Every continue token and every interrupted watch needs the same history, so the namespace that writes most of it shortens it for
//! all. The writer requests each group: a namespace that has written more than is left of the room is refused, until
//! changes leave the history by their age. One such namespace gets half of the room, two a third each, and so on; what
//! others write shrinks the rest, and never their own share below [`LEAST_PART`].
//!
//! Deletions pass, as does the put that marks an object as deleted: each needs an object that was written before.

use crate::quota::marks_deletion;
use crate::write::stored_size;
use crate::{Claim, Entry, Key, Op, StorageError, Write};
use machinery_meta::Revision;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the log since the compact revision.
#[derive(Debug)]
pub(super) struct PastShares {
    /// Bytes that all of them share.
    room: u64,
    /// Seconds after which a refused client tries again.
    retry_seconds: u32,
    system_namespaces: Vec<Box<str>>,
    /// Makes accounts of objects unpredictable for clients that choose names.
    seed: u64,
    held: HashMap<Account, u64>,
    total: u64,
    /// Part of it that is of [`Account::Object`].
    of_system: u64,
    /// The oldest first; what is compacted goes piece by piece.
    pieces: VecDeque<Piece>,
    refused: u64,
}

/// Owner of a part of the past.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Account {
    /// The changes that were there at the start.
    Before,
    Namespace(Box<str>),
    /// Its objects with a time to live: a flood of events stops no other write.
    Events(Box<str>),
    /// Objects without a namespace, and those of the system's, by a hash of the key: one node that writes its own objects
    /// without end stops no other.
    Object(u64),
}

/// Consecutive changes.
#[derive(Debug, Default)]
struct Piece {
    last: Revision,
    bytes: u64,
    by_account: HashMap<Account, u64>,
}

/// Share of the kept past that is for changes since the compact revision; the log holds some before it, and heads of
/// records.
const ROOM: (u64, u64) = (3, 4);
/// A namespace with less than this part of the room is not refused, however much others have written.
const LEAST_PART: u64 = 64;
/// An object without a namespace, or of the system's.
const LEAST_PART_OF_OBJECT: u64 = 512;
/// Accounts of such objects.
const OBJECTS: u64 = 1024;
/// Components of the system and administrators may write so many times what is left, users once.
const OF_SYSTEM: u64 = 3;
/// The past goes in so many pieces, about.
const PIECES: u64 = 64;
/// Bytes of a change beside its record and key, about.
const BESIDE: u64 = 128;
/// A refused client tries again after this part of the time that changes are kept, and within [`MAX_RETRY_SECONDS`].
const RETRY_PART: u32 = 10;
const MAX_RETRY_SECONDS: u32 = 30;

impl PastShares {
    /// `kept` bytes, of which `before` are there up to a revision.
    pub(super) fn new(
        (kept, retention): (u64, Duration),
        system_namespaces: &[Box<str>],
        seed: u64,
        (before, revision): (u64, Revision),
    ) -> Self {
        let seconds = u32::try_from(retention.as_secs()).unwrap_or(u32::MAX) / RETRY_PART;
        let mut shares = Self {
            room: kept / ROOM.1 * ROOM.0,
            retry_seconds: seconds.clamp(1, MAX_RETRY_SECONDS),
            system_namespaces: system_namespaces.to_vec(),
            seed,
            held: HashMap::new(),
            total: 0,
            of_system: 0,
            pieces: VecDeque::new(),
            refused: 0,
        };
        shares.count(Account::Before, before, revision);
        shares
    }

    /// Refuses a group that puts more into a share that is spent. `before` has what is at the key of each write.
    ///
    /// Errors: [`StorageError::PastShareExceeded`].
    pub(super) fn check(
        &mut self,
        group: &[Write],
        before: &[Option<Arc<Entry>>],
        claim: Claim,
    ) -> Result<(), StorageError> {
        for (write, old) in group.iter().zip(before) {
            let Op::Put { record, .. } = &write.op else {
                continue;
            };
            if marks_deletion(old.as_deref(), record) {
                continue;
            }
            let account = self.account(write, old.as_deref());
            if self.is_spent(&account, claim) {
                self.refused += 1;
                return Err(StorageError::PastShareExceeded {
                    namespace: record.header.key.namespace.clone(),
                    retry_seconds: self.retry_seconds,
                });
            }
        }
        Ok(())
    }

    fn is_spent(&self, account: &Account, claim: Claim) -> bool {
        let held = self.held.get(account).copied().unwrap_or(0);
        let times = if claim == Claim::System { OF_SYSTEM } else { 1 };
        let left = self.room.saturating_sub(self.total).saturating_mul(times);
        match account {
            Account::Object(_) => self.of_system > left && held > self.room / LEAST_PART_OF_OBJECT,
            _ => held > left && held > self.room / LEAST_PART,
        }
    }

    /// Counts a change that is taken up. One that the disk refuses then stays counted, as long as it would have been kept.
    pub(super) fn add(&mut self, write: &Write, old: Option<&Entry>, revision: Revision) {
        let record = match &write.op {
            Op::Check => return,
            Op::Delete => 0,
            Op::Put { record, .. } => stored_size(record) as u64,
        };
        let bytes = record + write.key.as_str().len() as u64 + BESIDE;
        self.count(self.account(write, old), bytes, revision);
    }

    fn count(&mut self, account: Account, bytes: u64, revision: Revision) {
        if bytes == 0 {
            return;
        }
        if self
            .pieces
            .back()
            .is_none_or(|last| last.bytes > self.room / PIECES)
        {
            self.pieces.push_back(Piece::default());
        }
        let piece = self.pieces.back_mut().expect("one was just added");
        piece.last = revision;
        piece.bytes += bytes;
        *piece.by_account.entry(account.clone()).or_default() += bytes;
        self.total += bytes;
        if matches!(account, Account::Object(_)) {
            self.of_system += bytes;
        }
        *self.held.entry(account).or_default() += bytes;
    }

    /// Forgets changes up to a revision, which are no longer kept.
    pub(super) fn compacted(&mut self, floor: Revision) {
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.last <= floor) {
            self.total -= piece.bytes;
            for (account, bytes) in piece.by_account {
                if matches!(account, Account::Object(_)) {
                    self.of_system -= bytes;
                }
                let left = self.held.get_mut(&account).map(|held| {
                    *held -= bytes;
                    *held
                });
                if left == Some(0) {
                    self.held.remove(&account);
                }
            }
        }
    }

    /// Groups that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    fn account(&self, write: &Write, old: Option<&Entry>) -> Account {
        let (header, expires) = match (&write.op, old) {
            (Op::Put { record, ttl }, _) => (&record.header, ttl.is_some()),
            (_, Some(old)) => (&old.record.header, old.expires.is_some()),
            (_, None) => return self.object(&write.key),
        };
        let namespace = header.key.namespace.as_str();
        if namespace.is_empty() || self.system_namespaces.iter().any(|own| **own == *namespace) {
            self.object(&write.key)
        } else if expires {
            Account::Events(namespace.into())
        } else {
            Account::Namespace(namespace.into())
        }
    }

    fn object(&self, key: &Key) -> Account {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        Account::Object(hasher.finish() % OBJECTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use machinery_meta::{ObjectHeader, ObjectKey};

    const RECORD: usize = 10_000;
    const KEPT: u64 = 40_000_000;

    struct Past {
        shares: PastShares,
        revision: Revision,
    }

    impl Past {
        fn new(kept: u64) -> Self {
            let system = [Box::from("kube-system")];
            let kept = (kept, Duration::from_secs(300));
            Self {
                shares: PastShares::new(kept, &system, 7, (0, Revision::ZERO)),
                revision: Revision::ZERO,
            }
        }

        fn write(
            &mut self,
            claim: Claim,
            write: &Write,
            old: Option<Arc<Entry>>,
        ) -> Result<(), StorageError> {
            self.shares
                .check(std::slice::from_ref(write), std::slice::from_ref(&old), claim)?;
            self.revision = self.revision.next();
            self.shares.add(write, old.as_deref(), self.revision);
            Ok(())
        }

        /// Puts until one is refused, at most so many; how many there were.
        fn puts(&mut self, claim: Claim, (namespace, name): (&str, &str), most: usize) -> usize {
            let refused = (0..most).find(|_| self.write(claim, &put(namespace, name), None).is_err());
            refused.unwrap_or(most)
        }
    }

    fn record(namespace: &str, is_deleting: bool) -> Record {
        let header = ObjectHeader {
            key: ObjectKey::new(namespace, "x"),
            deletion_timestamp: is_deleting.then(|| "2026-11-23T00:00:00Z".into()),
            ..ObjectHeader::default()
        };
        Record {
            parts: [Default::default(), Default::default(), vec![b'x'; RECORD].into()],
            fingerprint: 0,
            header: Arc::new(header),
        }
    }

    fn put(namespace: &str, name: &str) -> Write {
        let key = Key::parse(&format!("/registry/things/n{namespace}/{name}")).unwrap();
        let op = Op::Put {
            record: record(namespace, false),
            ttl: None,
        };
        Write {
            key,
            expect: crate::Expect::Any,
            op,
        }
    }

    #[test]
    fn past_share_is_half_for_one_and_a_third_for_two() {
        let most = usize::try_from(KEPT).unwrap() / RECORD;
        let mut past = Past::new(KEPT);
        let alone = past.puts(Claim::User, ("loud", "x"), most);
        assert!((1_400..1_500).contains(&alone), "{alone} of 3,000");
        let of_system = past.puts(Claim::System, ("loud", "x"), most);
        assert!((700..800).contains(&of_system), "{of_system}: half as much again");

        let mut past = Past::new(KEPT);
        let mut both = [0, 0];
        for _ in 0..most {
            for (at, name) in ["loud", "proud"].into_iter().enumerate() {
                both[at] += past.puts(Claim::User, (name, "x"), 1);
            }
        }
        assert!(both.iter().all(|own| (900..1_000).contains(own)), "{both:?}");
        assert_eq!(past.puts(Claim::User, ("quiet", "x"), 450), 450);
    }

    #[test]
    fn past_share_comes_back_when_changes_are_compacted() {
        let mut past = Past::new(KEPT);
        past.puts(Claim::User, ("loud", "x"), usize::MAX);
        let refused = past.write(Claim::User, &put("loud", "x"), None).unwrap_err();
        let StorageError::PastShareExceeded {
            namespace,
            retry_seconds,
        } = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((&*namespace, retry_seconds), ("loud", 30));
        past.shares.compacted(Revision(past.revision.0 / 2));
        let again = past.puts(Claim::User, ("loud", "x"), usize::MAX);
        assert!((600..800).contains(&again), "{again}");
        past.shares.compacted(past.revision);
        assert_eq!(
            (past.shares.total, past.shares.of_system, past.shares.held.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn past_share_that_is_spent_lets_deletions_and_events_pass() {
        let mut past = Past::new(KEPT);
        past.puts(Claim::User, ("loud", "x"), usize::MAX);
        let own = put("loud", "x");
        let old = || {
            Some(Arc::new(Entry {
                seal: Default::default(),
                key: own.key.clone(),
                revision: Revision(1),
                created: Revision(1),
                expires: None,
                record: record("loud", false),
            }))
        };
        assert!(past.write(Claim::User, &own, old()).is_err());
        let with = |op| Write { op, ..own.clone() };
        let marked = Op::Put {
            record: record("loud", true),
            ttl: None,
        };
        let event = Op::Put {
            record: record("loud", false),
            ttl: Some(Duration::from_secs(60)),
        };
        for op in [marked, Op::Delete, event] {
            past.write(Claim::User, &with(op), old()).unwrap();
        }
    }

    /// A namespace within its least part goes on although nothing is left.
    #[test]
    fn past_share_of_a_quiet_namespace_has_a_least() {
        let mut past = Past::new(KEPT);
        for name in 0..100 {
            past.puts(Claim::System, (&format!("n{name}"), "x"), 1_000);
        }
        let least = usize::try_from(past.shares.room / LEAST_PART).unwrap() / RECORD;
        let quiet = past.puts(Claim::User, ("quiet", "x"), 1_000);
        assert!((least..least + 3).contains(&quiet), "{quiet} of {least}");
    }

    /// Objects without a namespace count by name, within bounds: there are no more accounts than [`OBJECTS`].
    #[test]
    fn past_share_without_a_namespace_is_of_one_object() {
        for namespace in ["", "kube-system"] {
            let mut past = Past::new(KEPT);
            let loud = past.puts(Claim::System, (namespace, "loud"), usize::MAX);
            assert!((2_200..2_300).contains(&loud), "{loud} of 3,000");
            assert_eq!(past.puts(Claim::System, (namespace, "quiet"), 5), 5);
            for name in 0..3 * OBJECTS {
                past.puts(Claim::System, (namespace, &name.to_string()), 1);
            }
            assert!(past.shares.held.len() <= usize::try_from(OBJECTS).unwrap());
        }
    }

    /// As a server has it by default: a controller that writes a thousand objects of 10 KB in a moment, four times each.
    #[test]
    fn past_share_is_not_noticed_by_an_ordinary_controller() {
        let mut past = Past::new(2 << 30);
        past.puts(Claim::User, ("loud", "x"), usize::MAX);
        assert_eq!(past.puts(Claim::User, ("quiet", "x"), 4_000), 4_000);
        assert_eq!(past.shares.refused(), 1);
    }
}
