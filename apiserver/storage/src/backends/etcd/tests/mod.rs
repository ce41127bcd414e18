//! The suite on an etcd: on a real one when it has been built, and on the model of one, where a seed decides the rest.

mod keys;
mod kms;
mod likeness;
mod mirror;
mod process;
mod quota;

use super::{EtcdOptions, EtcdStorage};
use crate::suite::{self, Subject};
use crate::{Expect, Key, Op, Prefix, Record, RecordCodec, Storage, WatchFilter, WatchRequest, Write};
use apiserver_etcd_model::{Etcd, FaultProfile, Transport};
use machinery_runtime::{Runtime, Simulation, TaskHandle, seeds};
use process::Process;
use std::sync::Arc;
use std::time::Duration;

/// The three parts with a mark between them; the header is made from the text again.
#[derive(Debug)]
struct TextCodec;

impl RecordCodec for TextCodec {
    fn encode(&self, _: &Key, record: &Record) -> Result<Vec<u8>, String> {
        Ok(record.parts.join(&0x1f))
    }

    fn decode(&self, _: &Key, value: &[u8]) -> Result<Record, String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let mut parts = text.splitn(3, '\u{1f}').skip(1);
        let (head, value) = (parts.next().ok_or("no head")?, parts.next().ok_or("no value")?);
        let field = |name: &str| {
            head.split(';')
                .find_map(|pair| pair.strip_prefix(name))
                .ok_or("no field")
        };
        Ok(suite::record(field("name=")?, field("node=")?, value))
    }
}

async fn on(process: &Process, runtime: &Runtime, options: EtcdOptions) -> EtcdStorage {
    let options = EtcdOptions {
        endpoints: vec![process.endpoint.clone()],
        ..options
    };
    loop {
        let storage = EtcdStorage::connect(runtime, &options).await;
        if let Ok(storage) = storage
            && storage.remote.current().await.is_ok()
        {
            storage.codec().unwrap().fill(Arc::new(TextCodec));
            return storage;
        }
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

async fn on_the_model(etcd: &Etcd, runtime: &Runtime) -> EtcdStorage {
    through(etcd.transport(), runtime, EtcdOptions::default()).await
}

async fn through(transport: Transport, runtime: &Runtime, options: EtcdOptions) -> EtcdStorage {
    let options = EtcdOptions {
        endpoints: vec!["http://model".to_owned()],
        ..options
    };
    let storage = EtcdStorage::connect_through(runtime, &options, transport);
    let storage = storage.await.unwrap();
    storage.codec().unwrap().fill(Arc::new(TextCodec));
    storage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_suite_on_real_etcd() {
    let Some(process) = Process::start() else { return };
    let runtime = Runtime::real();
    let storage = Arc::new(on(&process, &runtime, EtcdOptions::default()).await);
    suite::all(&Subject {
        storage,
        runtime,
        one_revision_per_group: true,
    })
    .await;
}

const DEFAULT_SEEDS: u64 = 4;
/// Simulated time of a test; what takes longer waits for what never comes.
const LONG_ENOUGH: Duration = Duration::from_secs(120);

/// Late, in small pieces, from members that are behind: the contract is the same.
#[test]
fn storage_suite_on_etcd_model() {
    for seed in seeds(DEFAULT_SEEDS) {
        let simulation = Simulation::new(seed);
        let runtime = simulation.runtime();
        let ended = simulation.run(async move {
            let etcd = Etcd::start(&runtime, FaultProfile::rough(&runtime));
            let subject = Subject {
                storage: Arc::new(on_the_model(&etcd, &runtime).await),
                runtime: runtime.clone(),
                one_revision_per_group: true,
            };
            runtime.timeout(LONG_ENOUGH, suite::all(&subject)).await
        });
        assert_eq!(ended, Ok(()), "seed {seed}: something waits for ever");
    }
}

/// A watch whose member is cut off from the others goes on when it is back, without a break for its client.
#[test]
fn watch_outlives_a_loss_of_the_leader() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let told = simulation.run(async move {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let storage = on_the_model(&etcd, &runtime).await;
        let everything = WatchRequest {
            interests: vec![WatchFilter::prefix(Prefix::parse("/").unwrap())],
            after: storage.current_revision().await.unwrap(),
        };
        let mut cursor = storage.watch(everything).await.unwrap();
        etcd.cut_off(true);
        let silent = runtime
            .timeout(Duration::from_secs(30), cursor.next_batch(1))
            .await;
        assert!(silent.is_err(), "{silent:?}");
        etcd.cut_off(false);
        let (key, record) = (
            Key::parse("/registry/a/b").unwrap(),
            suite::record("b", "n1", "1"),
        );
        storage.commit(vec![Write::create(key, record)]).await.unwrap();
        runtime.timeout(LONG_ENOUGH, cursor.next_batch(1)).await
    });
    assert!(matches!(&told, Ok(Ok(events)) if events.len() == 1), "{told:?}");
}

/// Closing refuses what comes, and answers for what was taken up.
#[test]
fn etcd_accepted_write_is_finished() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let delay = Duration::from_millis(20);
    simulation.run(async move {
        let faults = FaultProfile {
            delay,
            ..FaultProfile::none()
        };
        let etcd = Etcd::start(&runtime, faults);
        let storage = Arc::new(on_the_model(&etcd, &runtime).await);
        let writing = Arc::clone(&storage);
        let (key, record) = (
            Key::parse("/registry/a/b").unwrap(),
            suite::record("b", "n1", "1"),
        );
        let write = runtime.spawn("write", async move {
            writing.commit(vec![Write::create(key, record)]).await
        });
        runtime.sleep(Duration::from_micros(1)).await;
        storage.close().await;
        let written = write.await.unwrap();
        assert!(written.is_ok(), "{written:?}");
        assert!(storage.current_revision().await.is_err());
    });
}

/// A wait for a revision ends although the revision is compacted before the wait has begun.
#[test]
fn etcd_lost_revision_was_reached() {
    for seed in seeds(DEFAULT_SEEDS) {
        let simulation = Simulation::new(seed);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let etcd = Etcd::start(&runtime, FaultProfile::rough(&runtime));
            let storage = Arc::new(on_the_model(&etcd, &runtime).await);
            let writer = |_| runtime.spawn("writer", compact_each_change(Arc::clone(&storage)));
            let writing: Vec<_> = (0..4).map(writer).collect();
            for _ in 0..20 {
                let next = storage.current_revision().await.unwrap().next();
                let reached = runtime.timeout(LONG_ENOUGH, storage.reached(next)).await;
                assert!(matches!(reached, Ok(Ok(()))), "{reached:?}");
            }
            writing.iter().for_each(TaskHandle::abort);
        });
    }
}

async fn compact_each_change(storage: Arc<EtcdStorage>) {
    loop {
        let write = Write {
            key: Key::parse("/registry/a/b").unwrap(),
            expect: Expect::Any,
            op: Op::Put {
                record: suite::record("b", "n1", "1"),
                ttl: None,
            },
        };
        let written = storage.commit(vec![write]).await.unwrap();
        storage.compact(written[0].revision).await.unwrap();
    }
}
