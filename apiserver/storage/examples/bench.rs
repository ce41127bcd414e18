//! Benchmark of the segment log on this machine: `cargo run --release -p apiserver-storage --example bench
//! [directory]`.
//!
//! Prints one line per figure. The directory decides the disk; it is used below and cleaned.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops at the first surprise"
)]

use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, ObjectKey, Op, Prefix, RangeOptions, ReadAt, Record,
    Revision, Storage, Uid, WatchFilter, WatchRequest, Write,
};
use bytes::Bytes;
use machinery_runtime::{DiskCall, ObservedDisk, RealDisk, Runtime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let base = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    tokio.block_on(async {
        let dir = base.join(format!("knarr-bench-{}", std::process::id()));
        for writers in [1, 64] {
            commits(&dir.join(format!("commits-{writers}")), writers).await;
        }
        recovery(&dir.join("recovery")).await;
        watches().await;
        std::fs::remove_dir_all(&dir).unwrap();
    });
}

/// An object of about so many bytes with a header like a pod's.
fn record(name: &str, node: &str, bytes: usize) -> Record {
    let header = ObjectHeader {
        key: ObjectKey::new("default", name),
        uid: Uid("7c2a8e1e-6f0a-4c1b-9d58-2b0d3f5a1c77".to_owned()),
        generation: 1,
        labels: vec![
            ("app".into(), "web".into()),
            ("pod-template-hash".into(), "5d5f8c7b9".into()),
        ],
        creation_timestamp: Some("2026-01-01T00:00:00Z".into()),
        fields: machinery_meta::Fields::from([("spec.nodeName", node), ("status.phase", "Running")]),
        ..ObjectHeader::default()
    };
    let text = Bytes::from(vec![b'x'; bytes]);
    Record {
        parts: [text.slice(..40), text.slice(40..300), text.slice(300..)],
        fingerprint: 1,
        header: Arc::new(header),
    }
}

fn key(name: &str) -> Key {
    Key::parse(&format!("/registry/pods/default/{name}")).unwrap()
}

fn put(name: &str, node: &str, bytes: usize) -> Vec<Write> {
    let op = Op::Put {
        record: record(name, node, bytes),
        ttl: None,
    };
    vec![Write {
        key: key(name),
        expect: Expect::Any,
        op,
    }]
}

/// Seconds of CPU this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

/// Resident megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

async fn commits(dir: &Path, writers: usize) {
    const FOR: Duration = Duration::from_secs(4);
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let disk = ObservedDisk::new(RealDisk::new(), move |_, call| {
        if matches!(call, DiskCall::Sync | DiskCall::SyncDir) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let runtime = Runtime::real().with_disk(Arc::new(disk));
    let storage = Arc::new(LogStorage::open(&runtime, LogOptions::new(dir)).await.unwrap().0);
    let (cpu_before, syncs_before, start) = (cpu(), syncs.load(Ordering::Relaxed), runtime.monotonic());
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (storage, own) = (Arc::clone(&storage), runtime.clone());
            runtime.spawn("writer", async move {
                let mut took = Vec::new();
                for count in 0.. {
                    let begin = own.monotonic();
                    if begin - start > FOR {
                        break;
                    }
                    storage
                        .commit(put(&format!("pod-{writer}-{}", count % 50), "node-1", 1500))
                        .await
                        .unwrap();
                    took.push(own.monotonic() - begin);
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    took.sort_unstable();
    let (count, seconds) = (took.len() as f64, (runtime.monotonic() - start).as_secs_f64());
    let micros = |part: usize| took[took.len() * part / 1000].as_micros();
    println!(
        "{writers:>3} writers: {:>7.0} commits/s  p50 {} µs  p99 {} µs  {:.3} fsyncs/commit  {:.1} µs CPU/commit",
        count / seconds,
        micros(500),
        micros(990),
        (syncs.load(Ordering::Relaxed) - syncs_before) as f64 / count,
        (cpu() - cpu_before) * 1e6 / count,
    );
    storage.close().await;
}

async fn recovery(dir: &Path) {
    const PODS: usize = 10_000;
    let runtime = Runtime::real();
    let empty = resident();
    // No checkpoint for now: everything is in the log.
    let options = LogOptions {
        checkpoint_bytes: u64::MAX,
        ..LogOptions::new(dir)
    };
    let storage = LogStorage::open(&runtime, options.clone()).await.unwrap().0;
    let writes: Vec<_> = (0..PODS)
        .map(|pod| put(&format!("pod-{pod}"), &format!("node-{}", pod % 100), 2048))
        .collect();
    for some in writes.chunks(500) {
        futures::future::try_join_all(some.iter().map(|write| storage.commit(write.clone())))
            .await
            .unwrap();
    }
    drop(writes);
    println!(
        "resident after writing {PODS} of 2 KB: {:.0} MB (empty: {empty:.0} MB)",
        resident()
    );
    storage.close().await;
    drop(storage);
    timed_open(&runtime, &options, "log alone").await.close().await;
    let storage = timed_open(&runtime, &LogOptions::new(dir), "log alone, again").await;
    storage.checkpoint();
    while !std::fs::read_dir(dir)
        .unwrap()
        .any(|name| name.unwrap().file_name().to_string_lossy().ends_with(".ckpt"))
    {
        runtime.sleep(Duration::from_millis(10)).await;
    }
    storage.close().await;
    drop(storage);
    let storage = timed_open(&runtime, &LogOptions::new(dir), "checkpoint").await;
    reads(&runtime, &storage, PODS).await;
    storage.close().await;
}

async fn timed_open(runtime: &Runtime, options: &LogOptions, what: &str) -> LogStorage {
    let start = runtime.monotonic();
    let (storage, report) = LogStorage::open(runtime, options.clone()).await.unwrap();
    let took = (runtime.monotonic() - start).as_secs_f64() * 1e3;
    println!(
        "recovery of {} objects from {what}: {took:.1} ms, {} changes replayed",
        report.objects, report.replayed
    );
    storage
}

async fn reads(runtime: &Runtime, storage: &LogStorage, pods: usize) {
    let keys: Vec<Key> = (0..pods).map(|pod| key(&format!("pod-{pod}"))).collect();
    let start = runtime.monotonic();
    for key in &keys {
        assert!(storage.get(key, ReadAt::Latest).await.unwrap().entry.is_some());
    }
    println!(
        "get: {:.0} ns",
        (runtime.monotonic() - start).as_nanos() as f64 / pods as f64
    );
    let start = runtime.monotonic();
    let prefix = Prefix::parse("/registry/pods/").unwrap();
    let page = storage.range(&prefix, &RangeOptions::default()).await.unwrap();
    println!(
        "list of {}: {} µs",
        page.entries.len(),
        (runtime.monotonic() - start).as_micros()
    );
}

/// A thousand cursors on everything, then a thousand on a node each.
async fn watches() {
    const WATCHERS: usize = 1000;
    const CHANGES: usize = 2000;
    for by_node in [false, true] {
        let runtime = Runtime::real();
        let storage = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let prefix = Prefix::parse("/registry/pods/").unwrap();
        let expected = if by_node { CHANGES / WATCHERS } else { CHANGES };
        let before = resident();
        let mut tasks = Vec::new();
        for watcher in 0..WATCHERS {
            let mut interest = WatchFilter::prefix(prefix.clone());
            if by_node {
                interest = interest.with_field("spec.nodeName", &format!("node-{watcher}"));
            }
            let request = WatchRequest {
                interests: vec![interest],
                after: Revision::ZERO,
            };
            let mut cursor = storage.watch(request).await.unwrap();
            tasks.push(runtime.spawn("watcher", async move {
                let mut told = 0;
                while told < expected {
                    told += cursor.next_batch(64).await.unwrap().len();
                }
                told
            }));
        }
        let each = (resident() - before) * 1024.0 / WATCHERS as f64;
        let (cpu_before, start) = (cpu(), runtime.monotonic());
        for change in 0..CHANGES {
            let (pod, node) = (format!("pod-{change}"), format!("node-{}", change % WATCHERS));
            storage.commit(put(&pod, &node, 1500)).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut told = 0;
        for task in tasks {
            told += task.await.unwrap();
        }
        let what = if by_node {
            "each on a node of its own"
        } else {
            "on everything"
        };
        let used = cpu() - cpu_before;
        println!(
            "{WATCHERS} watchers {what}: {told} deliveries, {:.0} per CPU-second, {:.2} µs CPU per change, {:.0}/s, {each:.1} KB each",
            told as f64 / used,
            used * 1e6 / CHANGES as f64,
            told as f64 / (runtime.monotonic() - start).as_secs_f64(),
        );
        storage.close().await;
    }
}
