//! Knowledge about one simulation, and the conclusions that must follow from it.

use crate::instance::Instance;
use apiserver_storage::{
    Entry, Event, Key, LogStorage, ObjectHeader, ObjectKey, Prefix, RangeOptions, ReadAt, Record, Revision,
    Storage, WatchFilter, WatchRequest,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A key and what it became; nothing for a deletion.
pub(crate) type Change = (String, Option<String>);

/// All answers to clients, and the order of changes as recoveries showed it.
#[derive(Default)]
pub(crate) struct Checker {
    /// The changes of a group share a revision (etcd); otherwise each has its own.
    one_revision_per_group: bool,
    /// Every change with its revision. Proven by recoveries, or given by what decides the order; only ever grows.
    log: Vec<(u64, Change)>,
    /// The last revision of the proven order.
    proven: u64,
    /// The first change of each attempt in the log.
    happened: BTreeMap<u64, usize>,
    /// Changes that a client was shown: revision, key, and what it became.
    seen: BTreeMap<(u64, String), Option<String>>,
    /// Some answer shows that this revision has happened.
    shown: u64,
    /// The last revision that was acknowledged: reads that begin now must see it.
    pub(crate) acknowledged: u64,
    /// Every group that was tried, by number.
    attempts: BTreeMap<u64, Attempt>,
    reads: Vec<Read>,
    /// Changes received in this life, after the proven ones, by the one reader of every change.
    audited: BTreeMap<u64, Change>,
    /// The compact revision that was acknowledged or found last.
    pub(crate) floor: u64,
    /// The highest floor that a client has requested, or a recovery has found.
    pub(crate) asked_floor: u64,
    /// The revision that a change reported to have replaced, or none.
    replaced: BTreeMap<(u64, String), Option<u64>>,
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

/// A list that a client received.
struct Read {
    revision: u64,
    prefix: String,
    found: Vec<(String, u64, String)>,
}

/// Events of one cursor.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) after: u64,
    pub(crate) interest: WatchFilter,
    pub(crate) told: Vec<(u64, Change)>,
    pub(crate) position: u64,
}

/// Counts of what happened, which show that the test covers it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) uncertain_kept: u64,
    pub(crate) uncertain_lost: u64,
    pub(crate) reads: u64,
    pub(crate) told: u64,
    /// Watches that began far behind.
    pub(crate) catching_up: u64,
    /// Positions beyond the last change that was delivered.
    pub(crate) marks: u64,
    /// Watches that went on where their stream had broken.
    pub(crate) resumed: u64,
    /// Reads that were rightly refused as too late.
    pub(crate) too_late: u64,
    pub(crate) compacted: u64,
    /// Floors raised to what only this life has shown.
    pub(crate) compacted_in_life: u64,
    /// Lives in which the store raised the floor itself.
    pub(crate) compacted_by_age: u64,
    /// Writes that a full disk refused, and starts on one.
    pub(crate) no_space: u64,
    pub(crate) full_starts: u64,
    /// Writes that the quota refused.
    pub(crate) over_quota: u64,
    /// Reads that the disk refused.
    pub(crate) failed_reads: u64,
    /// Renames and removals that failed.
    pub(crate) failed_names: u64,
    /// Entries that were gone when their time had come.
    pub(crate) expired: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.uncertain_kept += other.uncertain_kept;
        self.uncertain_lost += other.uncertain_lost;
        self.reads += other.reads;
        self.told += other.told;
        self.catching_up += other.catching_up;
        self.marks += other.marks;
        self.resumed += other.resumed;
        self.too_late += other.too_late;
        self.compacted += other.compacted;
        self.compacted_in_life += other.compacted_in_life;
        self.compacted_by_age += other.compacted_by_age;
        self.no_space += other.no_space;
        self.full_starts += other.full_starts;
        self.over_quota += other.over_quota;
        self.failed_reads += other.failed_reads;
        self.failed_names += other.failed_names;
        self.expired += other.expired;
    }
}

/// An object with its namespace in the header, where the key has one.
pub(crate) fn record(key: &Key, node: &str, value: &str) -> Record {
    let namespace = match key.as_str().split('/').collect::<Vec<_>>()[..] {
        ["", "registry", _, namespace, _] => namespace,
        _ => "",
    };
    let header = ObjectHeader {
        key: ObjectKey::new(namespace, ""),
        fields: machinery_meta::Fields::from([("spec.nodeName", node)]),
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
    /// A checker of an etcd, which begins at revision one.
    pub(crate) fn on_etcd() -> Self {
        Self {
            one_revision_per_group: true,
            proven: 1,
            ..Self::default()
        }
    }

    /// The last revision of the proven order.
    pub(crate) fn proven(&self) -> u64 {
        self.proven
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
        let revisions: Vec<u64> = events.iter().map(|event| event.revision.0).collect();
        assert!(
            self.is_group(&revisions),
            "a group has the revisions {revisions:?}"
        );
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
        let before = event.previous.as_ref().map(|entry| entry.revision.0);
        let known = self
            .replaced
            .entry((event.revision.0, event.key.to_string()))
            .or_insert(before);
        assert_eq!(
            *known, before,
            "what revision {} replaced was reported as two different versions",
            event.revision
        );
        for entry in [&event.entry, &event.previous].into_iter().flatten() {
            self.saw_entry(entry);
        }
    }

    pub(crate) fn saw_entry(&mut self, entry: &Entry) {
        self.saw(entry.revision.0, (entry.key.to_string(), Some(text(entry))));
    }

    fn saw(&mut self, revision: u64, (key, value): Change) {
        self.saw_revision(revision);
        let known = self.seen.entry((revision, key)).or_insert_with(|| value.clone());
        assert_eq!(
            *known, value,
            "revision {revision} was reported as two different versions"
        );
    }

    /// The one reader of every change received these, in order and without a gap.
    pub(crate) fn audit(&mut self, events: &[Arc<Event>]) {
        for event in events {
            self.saw_change(event);
            let next = self
                .audited
                .last_key_value()
                .map_or(self.proven, |(last, _)| *last)
                + 1;
            assert_eq!(event.revision.0, next, "the reader of every change misses one");
            self.audited.insert(event.revision.0, change(event));
        }
    }

    /// The changes behind what is proven up to a floor: what no reader can receive again.
    fn known_until(&self, floor: u64) -> Vec<(u64, Change)> {
        let known = self.audited.range(..=floor);
        let known = known.map(|(revision, change)| (*revision, change.clone()));
        let known: Vec<_> = known.collect();
        let last = known.last().map_or(self.proven, |(last, _)| *last);
        assert!(floor <= last, "{floor} was compacted, known is {last}");
        known
    }

    /// Revision up to which every change of this life is known; what is compacted below it needs no recovery to be
    /// known.
    pub(crate) fn known(&self) -> u64 {
        self.audited
            .last_key_value()
            .map_or(self.proven, |(last, _)| *last)
    }

    /// Reports whether these are the revisions of one group.
    fn is_group(&self, revisions: &[u64]) -> bool {
        let step = u64::from(!self.one_revision_per_group);
        revisions.windows(2).all(|pair| pair[1] == pair[0] + step)
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

    /// Checks one key's state as it was read.
    pub(crate) fn read_one(&mut self, key: &Key, revision: Revision, entry: Option<&Arc<Entry>>) {
        self.saw_revision(revision.0);
        let found = entry.map(|entry| (key.to_string(), entry.revision.0, text(entry)));
        self.reads.push(Read {
            revision: revision.0,
            prefix: key.to_string(),
            found: found.into_iter().collect(),
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
        for event in events {
            let (revision, mark) = (event.revision.0, watch.position);
            assert!(
                revision > mark,
                "revision {revision} was told after the mark {mark}"
            );
            // Whether an object leaves a selection shows in what it was.
            assert_eq!(
                event.is_create(),
                event.previous.is_none(),
                "the past of revision {revision}"
            );
        }
        let last = events.last().map_or(watch.position, |event| event.revision.0);
        self.counts.marks += u64::from(position.0 > last);
        watch
            .told
            .extend(events.iter().map(|event| (event.revision.0, change(event))));
        watch.position = position.0;
    }

    /// A watch goes on from its position: what it had of a group that was not delivered to the end is delivered again.
    pub(crate) fn resume(&mut self, number: u64, position: Revision) {
        self.counts.resumed += 1;
        let watch = self.watches.get_mut(&number).unwrap();
        watch.told.retain(|(revision, _)| *revision <= position.0);
    }

    /// Checks the changes that a recovery found after the proven ones: they must be a run of whole attempts, and
    /// contain every change that was shown.
    pub(crate) fn extend(&mut self, news: Vec<(u64, Change)>, current: u64) {
        let first = self.log.len();
        for (revision, change) in news {
            let of_group = self.one_revision_per_group && revision == self.proven;
            assert!(of_group || revision == self.proven + 1, "the order has no holes");
            self.proven = revision;
            self.log.push((revision, change));
        }
        assert_eq!(self.proven, current, "every revision has its change");
        assert!(
            current >= self.shown,
            "revision {} was shown, recovered {current}",
            self.shown
        );
        for ((revision, key), value) in &self.seen {
            assert_eq!(
                self.at(*revision, key),
                Some(value),
                "{key} at revision {revision} is not what was shown"
            );
        }
        self.whole_attempts(first);
    }

    fn at(&self, revision: u64, key: &str) -> Option<&Option<String>> {
        let first = self.log.partition_point(|(at, _)| *at < revision);
        let mut changes = self.log[first..].iter().take_while(|(at, _)| *at == revision);
        let (_, (_, value)) = changes.find(|(_, (own, _))| own == key)?;
        Some(value)
    }

    fn whole_attempts(&mut self, first: usize) {
        for at in first..self.log.len() {
            let (_, change) = &self.log[at];
            let Some(value) = change.1.as_ref().filter(|_| is_ours(&change.0)) else {
                continue;
            };
            let number = attempt_of(value);
            let attempt = &self.attempts[&number];
            assert!(
                attempt.outcome != Outcome::Refused,
                "attempt {number} was refused and happened"
            );
            let within = attempt.changes.iter().position(|known| known == change);
            let start = at - within.unwrap_or_else(|| panic!("nobody asked for {change:?}"));
            let run = self.log.get(start..start + attempt.changes.len());
            let run = run.unwrap_or_else(|| panic!("attempt {number} is not whole"));
            let changes: Vec<&Change> = run.iter().map(|(_, change)| change).collect();
            let revisions: Vec<u64> = run.iter().map(|(revision, _)| *revision).collect();
            assert!(
                changes.iter().copied().eq(&attempt.changes) && self.is_group(&revisions),
                "attempt {number} is not whole"
            );
            match self.happened.insert(number, start) {
                Some(other) => assert_eq!(other, start, "attempt {number} happened twice"),
                None => self.counts.uncertain_kept += u64::from(attempt.outcome == Outcome::Uncertain),
            }
        }
        for (number, attempt) in &mut self.attempts {
            let puts = attempt.changes.iter().any(|(_, value)| value.is_some());
            if attempt.outcome == Outcome::Uncertain && puts && !self.happened.contains_key(number) {
                // It did not happen, and from now on it may not.
                attempt.outcome = Outcome::Refused;
                self.counts.uncertain_lost += 1;
            }
        }
    }

    /// The state at a revision: key to revision and text.
    fn state(&self, revision: u64) -> BTreeMap<&str, (u64, &str)> {
        let mut state = BTreeMap::new();
        for (at, (key, value)) in self.log.iter().take_while(|(at, _)| *at <= revision) {
            match value {
                Some(value) => state.insert(key.as_str(), (*at, value.as_str())),
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

    /// Every change of interest after where a watch began, in order.
    fn expected(&self, watch: &Watch) -> Vec<(u64, Change)> {
        let mut nodes: BTreeMap<&str, &str> = BTreeMap::new();
        let mut expected = Vec::new();
        for (revision, change) in &self.log {
            let (key, value) = change;
            let Ok(parsed) = Key::parse(key) else { continue };
            let before = nodes.remove(key.as_str());
            let now = value.as_deref().map(node_of);
            nodes.extend(now.map(|now| (key.as_str(), now)));
            let field = watch.interest.field.as_ref();
            let wanted = field.is_none_or(|(_, node)| before == Some(node) || now == Some(node));
            if *revision > watch.after && wanted && watch.interest.target.covers(&parsed) {
                expected.push((*revision, change.clone()));
            }
        }
        expected
    }

    fn check_watch(&self, watch: &Watch) {
        let (expected, position) = (self.expected(watch), watch.position);
        let told = expected.len().min(watch.told.len());
        let what = format!(
            "a watch of {:?} after {} to {position}",
            watch.interest, watch.after
        );
        assert_eq!(watch.told, expected[..told], "{what}");
        let next = expected.get(told).map(|(revision, _)| *revision);
        assert!(
            next.is_none_or(|next| next > position),
            "{what} has missed {next:?}"
        );
        // What is beyond the position is a part of a group, and the rest of it is still to come.
        let last = watch.told.last().map(|(revision, _)| *revision);
        assert!(
            last.is_none_or(|last| last <= position || next == Some(last)),
            "{what} is at {last:?}"
        );
    }

    /// Checks that each change replaced the version before it.
    fn check_replaced(&self) {
        let mut versions: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        for (revision, (key, value)) in &self.log {
            let before = versions.get(key.as_str()).copied().flatten();
            if let Some(told) = self.replaced.get(&(*revision, key.clone())) {
                assert_eq!(*told, before, "what revision {revision} of {key} replaced");
            }
            versions.insert(key, value.as_ref().map(|_| *revision));
        }
    }

    /// Every read and every watch against the order of changes.
    pub(crate) fn finish(&mut self) -> Counts {
        self.check_replaced();
        for read in &self.reads {
            self.check_list(read);
        }
        for watch in self.watches.values() {
            self.check_watch(watch);
        }
        self.counts.clone()
    }
}

/// Reports whether a client of the test wrote the key: servers keep values in etcd too.
fn is_ours(key: &str) -> bool {
    key.starts_with('/')
}

pub(crate) fn change(event: &Event) -> Change {
    (event.key.to_string(), event.entry.as_deref().map(text))
}

/// Reads what a recovery brought and holds it against what is known.
pub(crate) async fn recovered(checker: &Arc<Mutex<Checker>>, storage: &Arc<LogStorage>) {
    assert_eq!(storage.miscounted(), Vec::<String>::new(), "after a recovery");
    let current = storage.current_revision().await.unwrap();
    let floor = storage.compacted_revision().await.unwrap();
    let everything = Prefix::parse("/").unwrap();
    let mut news = checker.lock().known_until(floor.0);
    let from = news
        .last()
        .map_or(checker.lock().proven(), |(revision, _)| *revision);
    let request = WatchRequest {
        interests: vec![WatchFilter::prefix(everything.clone())],
        after: Revision(from),
    };
    if from < current.0 {
        let mut cursor = storage.watch(request).await.unwrap();
        while news.last().is_none_or(|(revision, _)| *revision < current.0) {
            for event in cursor.next_batch(7).await.unwrap() {
                checker.lock().saw_change(&event);
                news.push((event.revision.0, change(&event)));
            }
        }
    }
    let page = storage
        .range(&everything, &RangeOptions::default())
        .await
        .unwrap();
    let mut checker = checker.lock();
    checker.extend(news, current.0);
    assert!(checker.floor <= floor.0, "the floor went back to {floor}");
    checker.floor = floor.0;
    checker.asked_floor = checker.asked_floor.max(floor.0);
    checker.audited.clear();
    checker.read(&everything, page.revision, &page.entries);
    let read = checker.reads.last().unwrap();
    checker.check_list(read);
}

/// Every file is what was written, and every revision that is kept can be read as it was.
pub(crate) async fn fully_verified(checker: &Mutex<Checker>, instance: &Instance) {
    assert_eq!(instance.storage.verify().await.unwrap(), Vec::<String>::new());
    let storage = &instance.storage;
    let (from, to) = (
        storage.compacted_revision().await.unwrap(),
        storage.current_revision().await.unwrap(),
    );
    for revision in from.0..=to.0 {
        let at = Revision(revision);
        let options = RangeOptions {
            at: ReadAt::Exact(at),
            ..RangeOptions::default()
        };
        let nodes = Prefix::parse("/registry/nodes/").unwrap();
        let page = storage.range(&nodes, &options).await.unwrap();
        assert_eq!(page.revision, at);
        checker.lock().read(&nodes, at, &page.entries);
    }
}
