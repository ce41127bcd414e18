//! Clients of the store: writers, readers and watchers, all drawing from the seed.

use crate::checker::{Change, Checker, Watch, record};
use crate::instance::LONGEST_TTL;
use apiserver_storage::{
    Claim, Entry, Expect, Key, ObjectHeader, Op, Prefix, RangeOptions, ReadAt, Record, Revision, Storage,
    StorageError, WatchCursor, WatchFilter, WatchRequest, Write,
};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: usize = 6;
const WATCHERS: usize = 4;

/// The backend of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// In this process: it answers until it has ended. Only recoveries prove an order.
    Here,
    /// Behind a network: any request may be lost, any stream may break. The order is known without the store.
    Remote,
}

/// Starts all clients in the scope of this runtime; they end with it.
pub(crate) fn start(
    runtime: &Runtime,
    storage: &Arc<dyn Storage>,
    place: Backend,
    checker: &Arc<Mutex<Checker>>,
) {
    let client = Client {
        runtime: runtime.clone(),
        storage: Arc::clone(storage),
        place,
        checker: Arc::clone(checker),
    };
    if place == Backend::Here {
        runtime.spawn("auditor", client.clone().audit()).detach();
    }
    for _ in 0..CLIENTS {
        runtime.spawn("client", client.clone().act()).detach();
    }
    for _ in 0..WATCHERS {
        runtime.spawn("watcher", client.clone().watch()).detach();
    }
}

#[derive(Clone)]
struct Client {
    runtime: Runtime,
    storage: Arc<dyn Storage>,
    place: Backend,
    checker: Arc<Mutex<Checker>>,
}

impl Client {
    fn draw(&self, below: u64) -> u64 {
        self.runtime.random_u64() % below
    }

    fn key(&self) -> Key {
        let text = match self.draw(3) {
            0 => format!("/registry/nodes/{}", self.draw(3)),
            1 => format!("/registry/pods/a/{}", self.draw(4)),
            _ => format!("/registry/pods/b/{}", self.draw(4)),
        };
        Key::parse(&text).unwrap()
    }

    fn prefix(&self) -> Prefix {
        let all = ["/registry/nodes/", "/registry/pods/", "/registry/pods/a/", "/"];
        Prefix::parse(all[usize::try_from(self.draw(4)).unwrap()]).unwrap()
    }

    /// Reads every change there is, so that compaction never hides one from the checker.
    async fn audit(self) {
        let interests = vec![WatchFilter::prefix(Prefix::parse("/").unwrap())];
        let mut after = Revision(self.checker.lock().proven());
        loop {
            let request = WatchRequest {
                interests: interests.clone(),
                after,
            };
            let opened = self.storage.watch(request).await;
            let Ok(mut cursor) = opened else { return };
            loop {
                match cursor.next_batch(9).await {
                    Ok(events) => {
                        after = events.last().map_or(after, |event| event.revision);
                        self.checker.lock().audit(&events);
                    }
                    Err(StorageError::Io { .. }) => break,
                    Err(_) => return,
                }
            }
            self.rest(2_000).await;
        }
    }

    async fn rest(&self, most_micros: u64) {
        self.runtime
            .sleep(Duration::from_micros(self.draw(most_micros)))
            .await;
    }

    /// Acts until the store is gone.
    async fn act(self) {
        let mut known = None;
        loop {
            let alive = match self.draw(20) {
                0..=11 => self.write(known.take()).await,
                12..=15 => self.get(&mut known).await,
                16..=17 => self.list().await,
                18 => self.look_back().await,
                _ => self.compact().await,
            };
            if !alive {
                return;
            }
            self.rest(4_000).await;
        }
    }

    fn writes(&self, known: Option<(Key, Revision)>) -> Vec<(Key, Expect, bool)> {
        if let Some((key, revision)) = known {
            return vec![(key, Expect::At(revision), self.draw(4) > 0)];
        }
        let mut writes: Vec<(Key, Expect, bool)> = Vec::new();
        let count = if self.draw(4) == 0 { 2 + self.draw(4) } else { 1 };
        for _ in 0..count {
            let (key, put) = (self.key(), self.draw(6) > 0);
            let expect = if put && self.draw(4) == 0 {
                Expect::Absent
            } else {
                Expect::Any
            };
            if writes.iter().all(|(other, _, _)| *other != key) {
                writes.push((key, expect, put));
            }
        }
        writes
    }

    async fn write(&self, known: Option<(Key, Revision)>) -> bool {
        let number = self.checker.lock().begin(Vec::new());
        let mut changes: Vec<Change> = Vec::new();
        let mut group = Vec::new();
        for (index, (key, expect, put)) in self.writes(known).into_iter().enumerate() {
            let (node, padding) = (
                format!("n{}", self.draw(3)),
                "x".repeat(usize::try_from(self.draw(1500)).unwrap()),
            );
            let value = format!("{number}.{index}|{padding}");
            let op = if put {
                let ttl = (self.place == Backend::Here && self.draw(6) == 0).then_some(LONGEST_TTL);
                Op::Put {
                    record: record(&key, &node, &value),
                    ttl,
                }
            } else {
                Op::Delete
            };
            changes.push((key.to_string(), put.then(|| format!("{node}|{value}"))));
            group.push(Write { key, expect, op });
        }
        self.checker.lock().fill(number, changes);
        let impatient = self.draw(8) == 0;
        let claim = [Claim::User, Claim::User, Claim::System][usize::try_from(self.draw(3)).unwrap()];
        let commit = self.storage.commit_for(claim, group);
        let answer = if impatient {
            // The caller goes away; the write goes on.
            let Ok(answer) = self.runtime.timeout(Duration::from_millis(1), commit).await else {
                return true;
            };
            answer
        } else {
            commit.await
        };
        match answer {
            Ok(events) => self.checker.lock().acknowledge(number, &events),
            Err(StorageError::Conflict { current, .. }) => {
                self.checker.lock().refuse(number, current.as_ref())
            }
            // Of a small disk little is kept of the past.
            Err(StorageError::PastShareExceeded { .. }) => self.checker.lock().refuse(number, None),
            Err(StorageError::NoSpace) if self.place == Backend::Here => {
                let mut checker = self.checker.lock();
                checker.refuse(number, None);
                checker.counts.no_space += 1;
            }
            Err(StorageError::NamespaceQuotaExceeded { .. } | StorageError::StoreQuotaExceeded) => {
                let mut checker = self.checker.lock();
                checker.refuse(number, None);
                checker.counts.over_quota += 1;
            }
            Err(error) => return self.gone(&error),
        }
        true
    }

    /// The answer to a read, which fails only where a network can.
    fn had<T>(&self, answer: Result<T, StorageError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(StorageError::Unavailable(_) | StorageError::Unreachable { .. } | StorageError::Closed)
                if self.place == Backend::Remote =>
            {
                None
            }
            Err(StorageError::Io { .. }) if self.place == Backend::Here => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// Checks that a revision reported as compacted has been compacted.
    async fn too_late(&self, asked: Revision) -> bool {
        if let Some(floor) = self.had(self.storage.compacted_revision().await) {
            assert!(
                asked < floor,
                "{asked} is said to be compacted, the floor is {floor}"
            );
            self.checker.lock().counts.too_late += 1;
        }
        true
    }

    async fn get(&self, known: &mut Option<(Key, Revision)>) -> bool {
        let (key, acknowledged) = (self.key(), self.checker.lock().acknowledged);
        let Some(found) = self.had(self.storage.get(&key, ReadAt::Latest).await) else {
            return true;
        };
        assert!(
            found.revision.0 >= acknowledged,
            "a read misses what was acknowledged"
        );
        let mut checker = self.checker.lock();
        checker.read_one(&key, found.revision, found.entry.as_ref());
        if let Some(entry) = &found.entry {
            checker.saw_entry(entry);
            self.recache(entry);
            *known = Some((key, entry.revision));
        }
        true
    }

    /// Sometimes another form of an entry takes its place in memory, of another size.
    fn recache(&self, entry: &Entry) {
        if self.draw(2) == 0 {
            return;
        }
        let text = "x".repeat(usize::try_from(self.draw(60)).unwrap());
        let header = ObjectHeader {
            labels: vec![("label".into(), text.into())],
            ..(*entry.record.header).clone()
        };
        let record = Record {
            header: Arc::new(header),
            ..entry.record.clone()
        };
        self.storage.recache(&entry.key, entry.revision, record);
    }

    /// Whole, or page by page, slowly: it must be one list all the same.
    async fn list(&self) -> bool {
        let (prefix, acknowledged) = (self.prefix(), self.checker.lock().acknowledged);
        let mut options = RangeOptions {
            limit: [0, 3, 3][usize::try_from(self.draw(3)).unwrap()],
            ..RangeOptions::default()
        };
        let Some(first) = self.had(self.storage.range(&prefix, &options).await) else {
            return true;
        };
        assert!(
            first.revision.0 >= acknowledged,
            "a list misses what was acknowledged"
        );
        let (mut entries, mut remaining) = (first.entries, first.remaining);
        options.at = ReadAt::Exact(first.revision);
        while remaining > 0 {
            self.rest(6_000).await;
            options.start_after = entries.last().map(|entry| entry.key.clone());
            match self.storage.range(&prefix, &options).await {
                Ok(page) => {
                    assert_eq!(page.remaining, remaining.saturating_sub(3));
                    remaining = page.remaining;
                    entries.extend(page.entries);
                }
                Err(StorageError::Compacted { .. }) => return self.too_late(first.revision).await,
                Err(error) => return self.gone(&error),
            }
        }
        self.checker.lock().read(&prefix, first.revision, &entries);
        true
    }

    /// The floor and the last revision.
    async fn bounds(&self) -> Option<(Revision, Revision)> {
        let floor = self.had(self.storage.compacted_revision().await)?;
        Some((floor, self.had(self.storage.current_revision().await)?))
    }

    /// A list of the past, sometimes of what is no longer there.
    async fn look_back(&self) -> bool {
        let (prefix, Some((floor, current))) = (self.prefix(), self.bounds().await) else {
            return true;
        };
        let from = floor.0.saturating_sub(3).max(1).min(current.0);
        let at = Revision(from + self.draw(current.0 - from + 1));
        let options = RangeOptions {
            at: ReadAt::Exact(at),
            ..RangeOptions::default()
        };
        match self.storage.range(&prefix, &options).await {
            Ok(page) => {
                assert_eq!(page.revision, at);
                assert!(at >= floor, "{at} was read, the floor is {floor}");
                self.checker.lock().read(&prefix, at, &page.entries);
                true
            }
            Err(StorageError::Compacted { .. }) => self.too_late(at).await,
            Err(error) => self.gone(&error),
        }
    }

    /// Compacts. Where only recoveries prove an order, only known changes are compacted, so that the checker never
    /// misses one.
    async fn compact(&self) -> bool {
        let proven = match self.place {
            Backend::Here => self.checker.lock().known(),
            Backend::Remote => match self.had(self.storage.current_revision().await) {
                Some(current) => current.0,
                None => return true,
            },
        };
        let floor = Revision(proven.saturating_sub(self.draw(20)));
        {
            let mut checker = self.checker.lock();
            checker.asked_floor = checker.asked_floor.max(floor.0);
        }
        match self.storage.compact(floor).await {
            Ok(()) => {}
            Err(StorageError::NoSpace) if self.place == Backend::Here => return true,
            Err(error) => return self.gone(&error),
        }
        if self.place == Backend::Here {
            let mut checker = self.checker.lock();
            checker.floor = checker.floor.max(floor.0);
            checker.counts.compacted_in_life += u64::from(floor.0 > checker.proven());
        }
        self.checker.lock().counts.compacted += 1;
        let found = self.had(self.storage.compacted_revision().await);
        assert!(
            found.is_none_or(|found| found >= floor),
            "compacted to {floor}, {found:?} is said"
        );
        true
    }

    /// Asserts that the store has ended or cannot be reached, the only right errors; reports whether to go on.
    fn gone(&self, error: &StorageError) -> bool {
        assert!(
            matches!(
                error,
                StorageError::Unavailable(_)
                    | StorageError::Unreachable { .. }
                    | StorageError::Closed
                    | StorageError::Io { .. }
            ),
            "{error}"
        );
        let failed_read = matches!(error, StorageError::Io { .. });
        self.checker.lock().counts.failed_reads += u64::from(failed_read);
        self.place == Backend::Remote || failed_read
    }

    fn interest(&self) -> WatchFilter {
        match self.draw(4) {
            0 => WatchFilter::key(self.key()),
            1 => {
                WatchFilter::prefix(self.prefix()).with_field("spec.nodeName", &format!("n{}", self.draw(3)))
            }
            _ => WatchFilter::prefix(self.prefix()),
        }
    }

    /// Watches from somewhere, slowly, and begins again somewhere else now and then.
    async fn watch(self) {
        loop {
            if let Some((floor, current)) = self.bounds().await {
                let after = Revision(floor.0 + self.draw(current.0.saturating_sub(floor.0) + 1));
                // Far more than the history in memory holds, or than a stream sends at once.
                self.checker.lock().counts.catching_up += u64::from(current.0 - after.0 > 12);
                if !self.watch_after(after).await {
                    return;
                }
            }
            if self.place == Backend::Remote {
                self.rest(2_000).await;
            }
        }
    }

    async fn watch_after(&self, after: Revision) -> bool {
        let interest = self.interest();
        match self.open(&interest, after).await {
            Ok(cursor) => {
                let watch = Watch {
                    after: after.0,
                    interest: interest.clone(),
                    told: Vec::new(),
                    position: after.0,
                };
                let number = self.checker.lock().watching(watch);
                self.follow(cursor, &interest, number).await
            }
            Err(StorageError::Compacted { .. }) => self.too_late(after).await,
            Err(error) => self.gone(&error),
        }
    }

    async fn open(
        &self,
        interest: &WatchFilter,
        after: Revision,
    ) -> Result<Box<dyn WatchCursor>, StorageError> {
        let interests = vec![interest.clone()];
        self.storage.watch(WatchRequest { interests, after }).await
    }

    /// Follows a watch, which continues from its position when its stream breaks.
    async fn follow(&self, mut cursor: Box<dyn WatchCursor>, interest: &WatchFilter, number: u64) -> bool {
        let (bites, patience) = match self.place {
            Backend::Here => (12, Duration::from_millis(3)),
            Backend::Remote => (40, Duration::from_millis(10)),
        };
        for _ in 0..self.draw(bites) {
            let most = usize::try_from(1 + self.draw(5)).unwrap();
            let batch = self.runtime.timeout(patience, cursor.next_batch(most)).await;
            let position = cursor.position();
            match batch.unwrap_or(Ok(Vec::new())) {
                Ok(events) => self.checker.lock().told(number, &events, position),
                Err(StorageError::Compacted { .. }) => return self.too_late(position).await,
                Err(error) => {
                    if !self.gone(&error) {
                        return false;
                    }
                    // What a failed read of this cursor had not returned is delivered again.
                    match self.open(interest, position).await {
                        Ok(next) => cursor = next,
                        Err(StorageError::Compacted { .. }) => return self.too_late(position).await,
                        Err(error) => return self.gone(&error),
                    }
                    self.checker.lock().resume(number, position);
                }
            }
            self.rest(8_000).await;
        }
        true
    }
}
