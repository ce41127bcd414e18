//! What is known about one world, and what must follow from it.

use crate::instance::Instance;
use apiserver_storage::{
    Entry, Event, Interest, LogStorage, ObjectHeader, Prefix, RangeOptions, ReadAt, Record, Revision,
    Storage, WatchRequest,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key and what it became; nothing for a deletion.
pub(crate) type Change = (String, Option<String>);

/// Everything that clients were told, and the order of changes as recoveries showed it.
#[derive(Default)]
pub(crate) struct Checker {
    /// The change of revision `i + 1` is at `i`. Proven by recoveries, only ever grows.
    log: Vec<Change>,
    /// Changes that someone was shown.
    seen: BTreeMap<u64, Change>,
    /// Some answer said that this revision has happened.
    shown: u64,
    /// The last revision that was acknowledged: reads that begin now must see it.
    pub(crate) acknowledged: u64,
    /// Every group that was tried, by number.
    attempts: BTreeMap<u64, Attempt>,
    reads: Vec<Read>,
    watches: BTreeMap<u64, Watch>,
    pub(crate) counts: Counts,
}

struct Attempt {
    changes: Vec<Change>,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Under way, or the answer never came.
    Uncertain,
    Acknowledged,
    Refused,
}

/// A list someone was given.
struct Read {
    revision: u64,
    prefix: String,
    found: Vec<(String, u64, String)>,
}

/// What one cursor told.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) after: u64,
    pub(crate) interest: Interest,
    pub(crate) told: Vec<(u64, Change)>,
    pub(crate) position: u64,
}

/// What happened, to see that the test is worth its name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) uncertain_kept: u64,
    pub(crate) uncertain_lost: u64,
    pub(crate) reads: u64,
    pub(crate) told: u64,
    pub(crate) from_log: u64,
    pub(crate) compacted: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.uncertain_kept += other.uncertain_kept;
        self.uncertain_lost += other.uncertain_lost;
        self.reads += other.reads;
        self.told += other.told;
        self.from_log += other.from_log;
        self.compacted += other.compacted;
    }
}

pub(crate) fn record(node: &str, value: &str) -> Record {
    let header = ObjectHeader {
        fields: vec![("spec.nodeName".into(), node.into())],
        ..ObjectHeader::default()
    };
    let parts = [
        Bytes::new(),
        Bytes::copy_from_slice(node.as_bytes()),
        Bytes::copy_from_slice(value.as_bytes()),
    ];
    Record {
        parts,
        fingerprint: 1,
        header: Arc::new(header),
    }
}

/// Node and value: `n1|17.0|xxxx`.
fn text(entry: &Entry) -> String {
    let part = |at: usize| String::from_utf8(entry.record.parts[at].to_vec()).unwrap();
    format!("{}|{}", part(1), part(2))
}

fn node_of(text: &str) -> &str {
    text.split('|').next().unwrap()
}

fn attempt_of(text: &str) -> u64 {
    text.split('|')
        .nth(1)
        .unwrap()
        .split('.')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

impl Checker {
    /// How far the order of changes is proven.
    pub(crate) fn proven(&self) -> u64 {
        self.log.len() as u64
    }

    pub(crate) fn begin(&mut self, changes: Vec<Change>) -> u64 {
        let number = self.attempts.len() as u64;
        self.attempts.insert(
            number,
            Attempt {
                changes,
                outcome: Outcome::Uncertain,
            },
        );
        number
    }

    /// The changes of an attempt are named after its number, so they are filled in when that is known.
    pub(crate) fn fill(&mut self, number: u64, changes: Vec<Change>) {
        self.attempts.get_mut(&number).unwrap().changes = changes;
    }

    pub(crate) fn acknowledge(&mut self, number: u64, events: &[Arc<Event>]) {
        self.counts.acknowledged += 1;
        let attempt = self.attempts.get_mut(&number).unwrap();
        attempt.outcome = Outcome::Acknowledged;
        let told: Vec<Change> = events.iter().map(|event| change(event)).collect();
        assert_eq!(told, attempt.changes, "the answer is what was asked");
        for event in events {
            self.saw_change(event);
            self.acknowledged = self.acknowledged.max(event.revision.0);
        }
    }

    pub(crate) fn refuse(&mut self, number: u64, current: Option<&Arc<Entry>>) {
        self.counts.refused += 1;
        self.attempts.get_mut(&number).unwrap().outcome = Outcome::Refused;
        if let Some(entry) = current {
            self.saw_entry(entry);
        }
    }

    pub(crate) fn saw_change(&mut self, event: &Event) {
        self.saw(event.revision.0, change(event));
        for entry in [&event.entry, &event.previous].into_iter().flatten() {
            self.saw_entry(entry);
        }
    }

    pub(crate) fn saw_entry(&mut self, entry: &Entry) {
        self.saw(entry.revision.0, (entry.key.to_string(), Some(text(entry))));
    }

    fn saw(&mut self, revision: u64, change: Change) {
        self.saw_revision(revision);
        let known = self.seen.entry(revision).or_insert_with(|| change.clone());
        assert_eq!(*known, change, "revision {revision} was told in two ways");
    }

    pub(crate) fn saw_revision(&mut self, revision: u64) {
        self.shown = self.shown.max(revision);
    }

    pub(crate) fn read(&mut self, prefix: &Prefix, revision: Revision, entries: &[Arc<Entry>]) {
        self.counts.reads += 1;
        self.saw_revision(revision.0);
        for entry in entries {
            self.saw_entry(entry);
        }
        let found = entries
            .iter()
            .map(|entry| (entry.key.to_string(), entry.revision.0, text(entry)))
            .collect();
        self.reads.push(Read {
            revision: revision.0,
            prefix: prefix.to_string(),
            found,
        });
    }

    pub(crate) fn watching(&mut self, watch: Watch) -> u64 {
        let number = self.watches.len() as u64;
        self.watches.insert(number, watch);
        number
    }

    pub(crate) fn told(&mut self, number: u64, events: &[Arc<Event>], position: Revision) {
        self.counts.told += events.len() as u64;
        self.saw_revision(position.0);
        for event in events {
            self.saw_change(event);
        }
        let watch = self.watches.get_mut(&number).unwrap();
        assert!(position.0 >= watch.position, "a position never goes back");
        watch
            .told
            .extend(events.iter().map(|event| (event.revision.0, change(event))));
        watch.position = position.0;
    }

    /// What a recovery found behind what was proven: it must be a run of whole attempts, and hold everything shown.
    fn extend(&mut self, news: Vec<(u64, Change)>, current: u64) {
        let first = self.log.len();
        for (revision, change) in news {
            assert_eq!(revision, self.proven() + 1, "the order has no holes");
            self.log.push(change);
        }
        assert_eq!(self.proven(), current, "every revision has its change");
        assert!(
            current >= self.shown,
            "revision {} was shown, recovered {current}",
            self.shown
        );
        for (revision, change) in &self.seen {
            assert_eq!(
                self.at(*revision),
                Some(change),
                "revision {revision} is not what was shown"
            );
        }
        self.whole_attempts(first);
    }

    fn at(&self, revision: u64) -> Option<&Change> {
        self.log.get(usize::try_from(revision).unwrap().checked_sub(1)?)
    }

    fn whole_attempts(&mut self, first: usize) {
        let mut present = BTreeSet::new();
        for at in first..self.log.len() {
            let Some(value) = &self.log[at].1 else { continue };
            let number = attempt_of(value);
            let attempt = &self.attempts[&number];
            assert!(
                attempt.outcome != Outcome::Refused,
                "attempt {number} was refused and happened"
            );
            let within = attempt.changes.iter().position(|change| *change == self.log[at]);
            let start = at - within.unwrap_or_else(|| panic!("nobody asked for {:?}", self.log[at]));
            let run = self.log.get(start..start + attempt.changes.len());
            assert_eq!(run, Some(&attempt.changes[..]), "attempt {number} is not whole");
            if attempt.outcome == Outcome::Uncertain && present.insert(number) {
                self.counts.uncertain_kept += 1;
            }
        }
        let kept: BTreeSet<u64> = self
            .log
            .iter()
            .filter_map(|(_, value)| Some(attempt_of(value.as_ref()?)))
            .collect();
        for (number, attempt) in &mut self.attempts {
            let puts = attempt.changes.iter().any(|(_, value)| value.is_some());
            if attempt.outcome == Outcome::Uncertain && puts && !kept.contains(number) {
                // It did not happen, and from now on it may not.
                attempt.outcome = Outcome::Refused;
                self.counts.uncertain_lost += 1;
            }
        }
    }

    /// The state at a revision: key to revision and text.
    fn state(&self, revision: u64) -> BTreeMap<&str, (u64, &str)> {
        let mut state = BTreeMap::new();
        for (at, (key, value)) in self
            .log
            .iter()
            .enumerate()
            .take(usize::try_from(revision).unwrap())
        {
            match value {
                Some(value) => state.insert(key.as_str(), (at as u64 + 1, value.as_str())),
                None => state.remove(key.as_str()),
            };
        }
        state
    }

    fn check_list(&self, read: &Read) {
        let state = self.state(read.revision);
        let expected: Vec<_> = state
            .iter()
            .filter(|(key, _)| key.starts_with(&read.prefix))
            .map(|(key, (revision, value))| ((*key).to_owned(), *revision, (*value).to_owned()))
            .collect();
        assert_eq!(
            read.found, expected,
            "a list of {} at {}",
            read.prefix, read.revision
        );
    }

    fn check_watch(&self, watch: &Watch) {
        let mut nodes: BTreeMap<&str, &str> = BTreeMap::new();
        let mut expected = Vec::new();
        for (at, change) in self.log.iter().enumerate() {
            let (revision, (key, value)) = (at as u64 + 1, change);
            let before = nodes.remove(key.as_str());
            let now = value.as_deref().map(node_of);
            nodes.extend(now.map(|now| (key.as_str(), now)));
            let parsed = apiserver_storage::Key::parse(key).unwrap();
            let field = watch.interest.field.as_ref();
            let wanted = field.is_none_or(|(_, node)| before == Some(node) || now == Some(node));
            let within = revision > watch.after && revision <= watch.position;
            if within && wanted && watch.interest.target.covers(&parsed) {
                expected.push((revision, change.clone()));
            }
        }
        let after = watch.after;
        assert_eq!(
            watch.told, expected,
            "a watch of {:?} after {after} to {}",
            watch.interest, watch.position
        );
    }

    /// Every read and every watch against the order of changes.
    pub(crate) fn finish(&mut self) -> Counts {
        for read in &self.reads {
            self.check_list(read);
        }
        for watch in self.watches.values() {
            self.check_watch(watch);
        }
        self.counts.clone()
    }
}

pub(crate) fn change(event: &Event) -> Change {
    (event.key.to_string(), event.entry.as_deref().map(text))
}

/// Reads what a recovery brought and holds it against what is known.
pub(crate) async fn recovered(checker: &Arc<Mutex<Checker>>, storage: &Arc<LogStorage>) {
    let current = storage.current_revision().await.unwrap();
    let everything = Prefix::parse("/").unwrap();
    let proven = checker.lock().proven();
    let request = WatchRequest {
        interests: vec![Interest::prefix(everything.clone())],
        after: Revision(proven),
    };
    let mut news = Vec::new();
    if proven < current.0 {
        let mut cursor = storage.watch(request).await.unwrap();
        while news.last().is_none_or(|(revision, _)| *revision < current.0) {
            for event in cursor.next_batch(7).await.unwrap() {
                news.push((event.revision.0, change(&event)));
            }
        }
    }
    let page = storage
        .range(&everything, &RangeOptions::default())
        .await
        .unwrap();
    let floor = storage.compacted_revision().await.unwrap();
    let mut checker = checker.lock();
    assert!(floor.0 <= checker.proven(), "nothing unproven was compacted");
    checker.extend(news, current.0);
    checker.read(&everything, page.revision, &page.entries);
    let read = checker.reads.last().unwrap();
    checker.check_list(read);
}

/// Every file is what was written, and every revision that is kept can be read.
pub(crate) async fn fully_verified(instance: &Instance) {
    assert_eq!(instance.storage.verify().await.unwrap(), Vec::<String>::new());
    let storage = &instance.storage;
    let (from, to) = (
        storage.compacted_revision().await.unwrap(),
        storage.current_revision().await.unwrap(),
    );
    for revision in from.0..=to.0 {
        let options = RangeOptions {
            at: ReadAt::Exact(Revision(revision)),
            ..RangeOptions::default()
        };
        storage
            .range(&Prefix::parse("/registry/nodes/").unwrap(), &options)
            .await
            .unwrap();
    }
}
