//! A panic in a worker of the log ends the log, and its owner learns of it.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_storage::{
    Key, LogOptions, LogStorage, ObjectHeader, Prefix, RangeOptions, ReadAt, Record, Revision, Storage,
    StorageError, Write,
};
use bytes::Bytes;
use machinery_runtime::{Disk, DiskFile, DiskLock, MemDisk, OpenMode, Runtime, Space};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A guard against hanging, not an assertion.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the disk panics.
const NOWHERE: u8 = 0;
const IN_SYNC: u8 = 1;
const IN_CHECKPOINT: u8 = 2;
const IN_READ: u8 = 3;

#[derive(Debug, Default)]
struct Panicking {
    disk: MemDisk,
    at: Arc<AtomicU8>,
}

#[derive(Debug)]
struct PanickingFile {
    file: Box<dyn DiskFile>,
    checkpoint: bool,
    at: Arc<AtomicU8>,
}

impl PanickingFile {
    fn panic_at(&self, place: u8) {
        assert!(self.at.load(Ordering::SeqCst) != place, "as told");
    }
}

impl DiskFile for PanickingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.checkpoint {
            self.panic_at(IN_CHECKPOINT);
        }
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.panic_at(IN_READ);
        self.file.read_at(offset, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.panic_at(IN_SYNC);
        self.file.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Disk for Panicking {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(PanickingFile {
            file: self.disk.open(path, mode)?,
            checkpoint: path.extension().is_some_and(|ext| ext == "tmp"),
            at: Arc::clone(&self.at),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }
}

fn write(value: usize) -> Vec<Write> {
    let record = Record {
        parts: [Bytes::new(), Bytes::new(), Bytes::from(value.to_string())],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    let key = Key::parse(&format!("/registry/pods/a/{value}")).unwrap();
    vec![Write::create(key, record)]
}

/// Ten writes, then `act` on a disk that panics there; the owner is told by this worker, once, and every later write is refused
/// at once.
async fn ends<F: Future<Output = ()>>(at: u8, worker: &str, act: impl FnOnce(Arc<LogStorage>) -> F) {
    let disk = Panicking::default();
    let place = Arc::clone(&disk.at);
    let runtime = Runtime::real().with_disk(Arc::new(disk));
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let options = LogOptions {
        history_bytes: 0,
        // Nobody else syncs or reads.
        reserve_bytes: 0,
        scrub_interval: Duration::ZERO,
        on_fatal: Arc::new(move |error| told.send(error.to_string()).unwrap()),
        ..LogOptions::new("/data")
    };
    let (storage, _) = LogStorage::open(&runtime, options).await.unwrap();
    let storage = Arc::new(storage);
    for value in 0..10 {
        storage.commit(write(value)).await.unwrap();
    }
    place.store(at, Ordering::SeqCst);
    let story = async {
        act(Arc::clone(&storage)).await;
        let fatal = hears.recv().await.unwrap();
        assert!(fatal.contains("as told") && fatal.contains(worker), "{fatal}");
        let refused = storage.commit(write(100)).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
        place.store(NOWHERE, Ordering::SeqCst);
        storage.close().await;
    };
    runtime.timeout(PATIENCE, story).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flush_panic_is_fatal() {
    ends(IN_SYNC, "the flush", async |storage| {
        let refused = storage.commit(write(11)).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_panic_is_fatal() {
    ends(IN_CHECKPOINT, "a checkpoint", async |storage| {
        storage.checkpoint()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_panic_is_fatal() {
    ends(IN_READ, "a reader", async |storage| {
        let options = RangeOptions {
            at: ReadAt::Exact(Revision(5)),
            ..RangeOptions::default()
        };
        let prefix = Prefix::parse("/").unwrap();
        let refused = storage.range(&prefix, &options).await;
        assert!(
            matches!(refused, Err(StorageError::Unavailable(_))),
            "{refused:?}"
        );
    })
    .await;
}
