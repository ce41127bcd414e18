//! Who uses the store: writers, readers and watchers, all drawing from the seed.

use crate::checker::{Change, Checker, Watch, record};
use crate::instance::Instance;
use apiserver_storage::{
    Expect, Interest, Key, LogStorage, Op, Prefix, RangeOptions, ReadAt, Revision, Storage, StorageError,
    WatchRequest, Write,
};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: usize = 6;
const WATCHERS: usize = 4;

/// Starts everyone in the instance's scope; they end with it.
pub(crate) fn start(runtime: &Runtime, instance: &Instance, checker: &Arc<Mutex<Checker>>) {
    let client = Client {
        runtime: runtime.clone(),
        storage: Arc::clone(&instance.storage),
        checker: Arc::clone(checker),
    };
    for _ in 0..CLIENTS {
        instance
            .scope
            .runtime()
            .spawn("client", client.clone().act())
            .detach();
    }
    for _ in 0..WATCHERS {
        instance
            .scope
            .runtime()
            .spawn("watcher", client.clone().watch())
            .detach();
    }
}

#[derive(Clone)]
struct Client {
    runtime: Runtime,
    storage: Arc<LogStorage>,
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
                Op::Put {
                    record: record(&node, &value),
                    ttl: None,
                }
            } else {
                Op::Delete
            };
            changes.push((key.to_string(), put.then(|| format!("{node}|{value}"))));
            group.push(Write { key, expect, op });
        }
        self.checker.lock().fill(number, changes);
        let impatient = self.draw(8) == 0;
        let commit = self.storage.commit(group);
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
            Err(StorageError::Unavailable(_)) => return false,
            Err(other) => panic!("{other}"),
        }
        true
    }

    async fn get(&self, known: &mut Option<(Key, Revision)>) -> bool {
        let (key, acknowledged) = (self.key(), self.checker.lock().acknowledged);
        let found = self.storage.get(&key, ReadAt::Latest).await.unwrap();
        assert!(
            found.revision.0 >= acknowledged,
            "a read misses what was acknowledged"
        );
        let mut checker = self.checker.lock();
        checker.saw_revision(found.revision.0);
        if let Some(entry) = &found.entry {
            checker.saw_entry(entry);
            *known = Some((key, entry.revision));
        }
        true
    }

    /// Page by page, slowly: it must be one list all the same.
    async fn list(&self) -> bool {
        let (prefix, acknowledged) = (self.prefix(), self.checker.lock().acknowledged);
        let mut options = RangeOptions {
            limit: 3,
            ..RangeOptions::default()
        };
        let first = self.storage.range(&prefix, &options).await.unwrap();
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
                Err(StorageError::Compacted { .. }) => return true,
                Err(error) => return self.gone(&error),
            }
        }
        self.checker.lock().read(&prefix, first.revision, &entries);
        true
    }

    /// A list of the past.
    async fn look_back(&self) -> bool {
        let (prefix, current) = (self.prefix(), self.storage.current_revision().await.unwrap());
        let floor = self.storage.compacted_revision().await.unwrap();
        let at = Revision(floor.0 + self.draw(current.0 - floor.0 + 1));
        let options = RangeOptions {
            at: ReadAt::Exact(at),
            ..RangeOptions::default()
        };
        match self.storage.range(&prefix, &options).await {
            Ok(page) => {
                assert_eq!(page.revision, at);
                self.checker.lock().read(&prefix, at, &page.entries);
                true
            }
            Err(StorageError::Compacted { .. }) => true,
            Err(error) => self.gone(&error),
        }
    }

    /// Only what is proven is given up, so that the checker never misses a change.
    async fn compact(&self) -> bool {
        let proven = self.checker.lock().proven();
        let floor = Revision(proven.saturating_sub(self.draw(20)));
        match self.storage.compact(floor).await {
            Ok(()) => {
                self.checker.lock().counts.compacted += 1;
                true
            }
            Err(error) => self.gone(&error),
        }
    }

    /// An error is only right when the store has ended.
    fn gone(&self, error: &StorageError) -> bool {
        assert!(
            matches!(error, StorageError::Unavailable(_) | StorageError::Io { .. }),
            "{error}"
        );
        false
    }

    fn interest(&self) -> Interest {
        match self.draw(4) {
            0 => Interest::key(self.key()),
            1 => Interest::prefix(self.prefix()).with_field("spec.nodeName", &format!("n{}", self.draw(3))),
            _ => Interest::prefix(self.prefix()),
        }
    }

    /// Watches from somewhere, slowly, and begins again somewhere else now and then.
    async fn watch(self) {
        loop {
            let floor = self.storage.compacted_revision().await.unwrap().0;
            let current = self.storage.current_revision().await.unwrap().0;
            let after = floor + self.draw(current - floor + 1);
            // Far more than the history in memory holds.
            self.checker.lock().counts.from_log += u64::from(current - after > 12);
            let interest = self.interest();
            let request = WatchRequest {
                interests: vec![interest.clone()],
                after: Revision(after),
            };
            let watch = Watch {
                after,
                interest,
                told: Vec::new(),
                position: after,
            };
            match self.storage.watch(request).await {
                Ok(cursor) => {
                    if !self.follow(cursor, watch).await {
                        return;
                    }
                }
                Err(StorageError::Compacted { .. }) => {}
                Err(error) => {
                    self.gone(&error);
                    return;
                }
            }
        }
    }

    async fn follow(&self, mut cursor: Box<dyn apiserver_storage::WatchCursor>, watch: Watch) -> bool {
        let number = self.checker.lock().watching(watch);
        for _ in 0..self.draw(12) {
            let most = usize::try_from(1 + self.draw(5)).unwrap();
            let batch = self
                .runtime
                .timeout(Duration::from_millis(3), cursor.next_batch(most))
                .await;
            let events = match batch {
                Err(_) => Vec::new(),
                Ok(Ok(events)) => events,
                Ok(Err(StorageError::Compacted { .. })) => return true,
                Ok(Err(error)) => return self.gone(&error),
            };
            let position = cursor.position();
            self.checker.lock().told(number, &events, position);
            self.rest(8_000).await;
        }
        true
    }
}
