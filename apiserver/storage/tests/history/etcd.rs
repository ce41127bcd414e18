//! Servers come and go over one etcd: a model of it, whose faults the seed decides and which alone decides the order.

use crate::checker::{Change, Checker, Counts, record};
use crate::clients::{self, Backend};
use crate::instance;
use apiserver_etcd_model::{Changed, Etcd, FaultProfile};
use apiserver_storage::{
    EtcdOptions, EtcdStorage, Key, Prefix, RangeOptions, ReadAt, Record, RecordCodec, Revision, Storage,
    StorageError,
};
use machinery_runtime::{Runtime, Scope, Simulation};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const DEFAULT_SEEDS: u64 = 20;
/// Number of times that a seed restarts its servers.
const LIVES: u64 = 3;
/// Servers that share the etcd.
const SERVERS: usize = 2;
/// Simulated time of a run; what takes longer waits for what never comes.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// Node and value with a bar between them, as the checker writes them.
#[derive(Debug)]
struct Codec;

impl RecordCodec for Codec {
    fn encode(&self, _: &Key, record: &Record) -> Result<Vec<u8>, String> {
        Ok(record.parts[1..].join(&b'|'))
    }

    fn decode(&self, key: &Key, value: &[u8]) -> Result<Record, String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let (node, value) = text.split_once('|').ok_or("no bar")?;
        Ok(record(key, node, value))
    }
}

/// One API server's way to the etcd.
struct Server {
    scope: Scope,
    storage: Arc<dyn Storage>,
}

impl Server {
    async fn start(runtime: &Runtime, etcd: &Etcd) -> Self {
        let scope = runtime.child_scope();
        // Half of them compact by themselves.
        let retention = Duration::from_millis([0, 5 + runtime.random_u64() % 40][coin(runtime)]);
        let options = EtcdOptions {
            endpoints: vec!["http://model".to_owned()],
            retention,
            // So that lists take several requests.
            range_chunk: 3,
            // Half of them hold so little that watches read older changes from etcd.
            history_bytes: [16 << 20, 8 << 10][coin(runtime)],
            quota: instance::quota(),
            ..EtcdOptions::default()
        };
        let storage = EtcdStorage::connect_through(scope.runtime(), &options, etcd.transport());
        let storage = Arc::new(storage.await.unwrap());
        storage.codec().unwrap().fill(Arc::new(Codec));
        Self { scope, storage }
    }

    /// Properly, or with everything in the middle of what it does.
    async fn end(self, runtime: &Runtime) {
        if coin(runtime) == 0 {
            self.storage.close().await;
        }
        self.scope.stopped().await;
    }
}

fn coin(runtime: &Runtime) -> usize {
    usize::from(runtime.random_u64().is_multiple_of(2))
}

/// One world from the first server to the last; what the checker counted.
pub(crate) fn live_through(seed: u64) -> (u64, Counts) {
    let simulation = Simulation::new(seed);
    let runtime = simulation.runtime();
    let counts = simulation.run(async move { runtime.timeout(LONG_ENOUGH, lives(&runtime)).await });
    let counts = counts.expect("something waits for ever");
    (simulation.trace_hash(), counts)
}

async fn lives(runtime: &Runtime) -> Counts {
    let etcd = Etcd::start(runtime, FaultProfile::stormy(runtime));
    let checker = Arc::new(Mutex::new(Checker::on_etcd()));
    for _ in 0..LIVES {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            let server = Server::start(runtime, &etcd).await;
            clients::start(server.scope.runtime(), &server.storage, Backend::Remote, &checker);
            servers.push(server);
        }
        runtime
            .sleep(Duration::from_millis(40 + runtime.random_u64() % 120))
            .await;
        for server in servers {
            server.end(runtime).await;
        }
        take_stock(&etcd, &checker);
    }
    let last = Server::start(runtime, &etcd).await;
    everything_kept_can_be_read(runtime, &last, &checker).await;
    last.end(runtime).await;
    take_stock(&etcd, &checker);
    checker.lock().finish()
}

/// No client writes now: what the members have agreed on is what happened.
fn take_stock(etcd: &Etcd, checker: &Mutex<Checker>) {
    let mut checker = checker.lock();
    let proven = i64::try_from(checker.proven()).unwrap();
    let news = etcd.changes_after(proven).into_iter().map(of_checker).collect();
    checker.extend(news, u64::try_from(etcd.revision()).unwrap());
}

fn of_checker(changed: Changed) -> (u64, Change) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let change = (text(changed.key), changed.value.map(text));
    (u64::try_from(changed.revision).unwrap(), change)
}

/// Every revision from the floor on, however often it has to be requested.
async fn everything_kept_can_be_read(runtime: &Runtime, server: &Server, checker: &Mutex<Checker>) {
    let (storage, nodes) = (&server.storage, Prefix::parse("/registry/nodes/").unwrap());
    let mut at = Revision(1);
    while at.0 <= checker.lock().proven() {
        let options = RangeOptions {
            at: ReadAt::Exact(at),
            ..RangeOptions::default()
        };
        match storage.range(&nodes, &options).await {
            Ok(page) => checker.lock().read(&nodes, at, &page.entries),
            Err(StorageError::Compacted { compacted, .. }) if compacted > at => {
                at = compacted;
                continue;
            }
            // Also what is compacted, when it is unknown how far.
            Err(
                StorageError::Unavailable(_)
                | StorageError::Unreachable { .. }
                | StorageError::Compacted { .. },
            ) => {
                runtime.sleep(Duration::from_millis(1)).await;
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        at = at.next();
    }
}
