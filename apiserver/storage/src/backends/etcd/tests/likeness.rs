//! The model of etcd is worth what it is like etcd: the same operations on a real one get the same answers.

use super::process::Process;
use apiserver_etcd_model::{Etcd, FaultProfile};
use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, Event, EventType, GetOptions, KeyValue, PutOptions,
    Txn, TxnOp, TxnOpResponse, TxnResponse, WatchOptions, WatchResponse, WatchStream,
};
use machinery_fuzz::Random;
use machinery_runtime::Runtime;
use std::fmt::Write;
use std::time::Duration;

/// Requests of a seed to an etcd, step by step, and every answer as a line.
struct Script {
    draws: Random,
    client: Client,
    /// Begun at first, and read up to each change.
    live: WatchStream,
    revision: i64,
    compacted: i64,
    lines: Vec<String>,
}

const STEPS: usize = 600;
const KEYS: [&str; 5] = ["/a", "/b", "/c/1", "/c/2", "/d"];
/// Each starts an etcd of its own.
const SCRIPTS: u64 = 2;
/// A lease that etcd did not grant.
const NO_LEASE: i64 = 4242;

impl Script {
    async fn run(seed: u64, mut client: Client) -> Vec<String> {
        let everything = WatchOptions::new().with_all_keys().with_prev_key();
        let live = client.watch("", Some(everything)).await.unwrap();
        let mut script = Self {
            draws: Random::new(seed),
            client,
            live,
            revision: 1,
            compacted: 0,
            lines: Vec::new(),
        };
        script.see(None).await;
        for _ in 0..STEPS {
            script.step().await;
        }
        script.refusals().await;
        script.expiry().await;
        script.lines
    }

    fn draw(&mut self, below: usize) -> usize {
        self.draws.below(below)
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.draw(5)]
    }

    /// Mostly one that can be read, sometimes just outside.
    fn some_revision(&mut self) -> i64 {
        let (from, to) = ((self.compacted - 1).max(0), self.revision + 2);
        from + i64::try_from(self.draw(usize::try_from(to - from).unwrap())).unwrap()
    }

    fn note(&mut self, what: &str, answer: Result<String, Error>) {
        let answer = answer.unwrap_or_else(|error| match error {
            Error::GRpcStatus(status) => format!("{:?} {}", status.code(), status.message()),
            other => other.to_string(),
        });
        self.lines.push(format!("{what}: {answer}"));
    }

    async fn step(&mut self) {
        match self.draw(20) {
            0..=10 => self.change().await,
            11..=13 => self.get().await,
            14..=16 => self.list().await,
            17 => self.compact().await,
            18 => self.progress().await,
            _ => self.look_back().await,
        }
    }

    async fn change(&mut self) {
        let mut operations = Vec::new();
        for key in KEYS {
            match self.draw(6) {
                0 | 1 => {
                    let value = self.draw(100).to_string();
                    operations.push(TxnOp::put(key, value, Some(PutOptions::new().with_prev_key())));
                }
                2 => operations.push(TxnOp::delete(key, Some(DeleteOptions::new().with_prev_key()))),
                3 => operations.push(TxnOp::get(key, None)),
                _ => {}
            }
        }
        let orders = [
            CompareOp::Equal,
            CompareOp::Greater,
            CompareOp::NotEqual,
            CompareOp::Less,
        ];
        let (key, order) = (self.key(), orders[self.draw(4)]);
        let compare = match self.draw(3) {
            0 => Compare::mod_revision(key, order, self.some_revision()),
            1 => Compare::version(key, order, i64::try_from(self.draw(3)).unwrap()),
            _ => Compare::create_revision(key, order, self.some_revision()),
        };
        let otherwise: Vec<TxnOp> = KEYS.iter().map(|key| TxnOp::get(*key, None)).collect();
        let transaction = Txn::new().when([compare]).and_then(operations).or_else(otherwise);
        let answer = self.client.txn(transaction).await.unwrap();
        let now = answer.header().unwrap().revision();
        self.note("txn", Ok(txn_text(&answer)));
        if now > self.revision {
            self.revision = now;
            self.see(Some(now)).await;
        }
    }

    /// Records the events of a revision on the watch that was opened at the beginning.
    async fn see(&mut self, revision: Option<i64>) {
        let told = self.live.message().await.unwrap().unwrap();
        assert!(revision.is_none_or(|revision| told.header().unwrap().revision() == revision));
        self.note("told", Ok(told_text(&told)));
    }

    async fn get(&mut self) {
        let (key, at) = (self.key(), self.some_revision());
        let options = GetOptions::new().with_revision(at);
        self.range(&format!("get {key} at {at}"), key, options).await;
    }

    async fn list(&mut self) {
        let (key, at, limit) = (
            ["/", "/c", "/b"][self.draw(3)],
            self.some_revision(),
            self.draw(4),
        );
        let options = GetOptions::new()
            .with_revision(at)
            .with_limit(i64::try_from(limit).unwrap());
        let options = if self.draw(2) == 0 {
            options.with_prefix()
        } else {
            options.with_range("/d")
        };
        let options = if self.draw(4) == 0 {
            options.with_count_only()
        } else {
            options
        };
        self.range(&format!("list {key} at {at}, at most {limit}"), key, options)
            .await;
    }

    async fn range(&mut self, what: &str, key: &str, options: GetOptions) {
        let answer = self.client.get(key, Some(options)).await.map(|answer| {
            let revision = answer.header().unwrap().revision();
            let kvs = answer.kvs().iter().map(kv_text).collect::<String>();
            format!(
                "@{revision} {} of {} {}:{kvs}",
                answer.kvs().len(),
                answer.count(),
                answer.more()
            )
        });
        self.note(what, answer);
    }

    async fn compact(&mut self) {
        let revision = self.some_revision();
        let answer = self.client.compact(revision, None).await;
        if answer.is_ok() {
            self.compacted = revision;
        }
        let answer = answer.map(|answer| format!("@{}", answer.header().unwrap().revision()));
        self.note(&format!("compact {revision}"), answer);
    }

    /// A watch from some revision, up to a change made after it began.
    async fn look_back(&mut self) {
        let (start, key) = (self.some_revision(), self.key());
        let options = WatchOptions::new().with_start_revision(start).with_prev_key();
        let (from, options) = if self.draw(2) == 0 {
            (key, options)
        } else {
            ("/", options.with_prefix())
        };
        let mut stream = self.client.watch(from, Some(options)).await.unwrap();
        let created = stream.message().await.unwrap().unwrap();
        self.note(&format!("watch {from} from {start}"), Ok(told_text(&created)));
        let put = Txn::new().and_then([TxnOp::put(key, "end", None)]);
        let end = self.client.txn(put).await.unwrap().header().unwrap().revision();
        self.revision = end;
        self.see(Some(end)).await;
        let mut told = String::new();
        loop {
            let answer = stream.message().await.unwrap().unwrap();
            let last = answer
                .events()
                .last()
                .and_then(Event::kv)
                .map(KeyValue::mod_revision);
            // How many revisions come at once is etcd's business; that they are whole is checked by their order.
            told += &answer.events().iter().map(event_text).collect::<String>();
            if answer.canceled() {
                write!(told, " canceled, compacted {}", answer.compact_revision()).unwrap();
            }
            if answer.canceled() || last == Some(end) {
                break;
            }
        }
        self.note("looked back", Ok(told));
    }

    /// Records the progress of the watch that was opened at the beginning.
    async fn progress(&mut self) {
        self.live.request_progress().await.unwrap();
        let told = self.live.message().await.unwrap().unwrap();
        self.note("progress", Ok(told_text(&told)));
    }

    async fn refusals(&mut self) {
        let put = |key: &str, value: Vec<u8>| TxnOp::put(key, value, None);
        let leased = PutOptions::new().with_lease(NO_LEASE);
        for (what, operations) in [
            ("no key", vec![put("", vec![])]),
            ("a key twice", vec![put("/a", vec![1]), put("/a", vec![2])]),
            (
                "too many",
                (0..129).map(|at| put(&format!("/{at}"), vec![])).collect(),
            ),
            ("too large", vec![put("/a", vec![b'x'; 1_600_000])]),
            ("no lease", vec![TxnOp::put("/a", "1", Some(leased.clone()))]),
        ] {
            let answer = self.client.txn(Txn::new().and_then(operations)).await;
            self.note(what, answer.map(|answer| txn_text(&answer)));
        }
    }

    /// Two keys of a lease, one of them written again without it.
    async fn expiry(&mut self) {
        let granted = self.client.lease_grant(1, None).await.unwrap();
        self.note("granted", Ok(granted.ttl().to_string()));
        let leased = PutOptions::new().with_lease(granted.id());
        let put = |key: &str, options| TxnOp::put(key, "leased", options);
        for operations in [
            vec![
                put("/d", Some(leased.clone())),
                put("/b", Some(leased.clone())),
                put("/a", Some(leased)),
            ],
            vec![put("/b", None)],
        ] {
            let answer = self.client.txn(Txn::new().and_then(operations)).await.unwrap();
            self.note("leased", Ok(txn_text(&answer)));
            self.see(Some(answer.header().unwrap().revision())).await;
        }
        // Both at once, when their time has come.
        self.see(None).await;
    }
}

fn kv_text(kv: &KeyValue) -> String {
    let (key, value) = (kv.key_str().unwrap(), kv.value_str().unwrap());
    let (created, changed, version, leased) = (
        kv.create_revision(),
        kv.mod_revision(),
        kv.version(),
        kv.lease() != 0,
    );
    format!(" {key}={value}({created} {changed} {version} {leased})")
}

fn event_text(event: &Event) -> String {
    let kind = if event.event_type() == EventType::Put {
        "put"
    } else {
        "delete"
    };
    let before = event.prev_kv().map(kv_text).unwrap_or_default();
    format!(" {kind}{} was[{before} ]", kv_text(event.kv().unwrap()))
}

fn told_text(told: &WatchResponse) -> String {
    let events: String = told.events().iter().map(event_text).collect();
    let (revision, created, canceled) = (told.header().unwrap().revision(), told.created(), told.canceled());
    format!(
        "@{revision} {created} {canceled} {}:{events}",
        told.compact_revision()
    )
}

fn txn_text(answer: &TxnResponse) -> String {
    let mut text = format!("@{} {}", answer.header().unwrap().revision(), answer.succeeded());
    for response in answer.op_responses() {
        let part = match response {
            TxnOpResponse::Get(get) => get.kvs().iter().map(kv_text).collect::<String>(),
            TxnOpResponse::Put(put) => put.prev_key().map(kv_text).unwrap_or_default(),
            TxnOpResponse::Delete(delete) => {
                let gone: String = delete.prev_kvs().iter().map(kv_text).collect();
                format!("{}{gone}", delete.deleted())
            }
            TxnOpResponse::Txn(_) => unreachable!("nobody asked"),
        };
        write!(text, " [{part}]").unwrap();
    }
    text
}

async fn connected(runtime: &Runtime, process: &Process) -> Client {
    loop {
        if let Ok(mut client) = Client::connect([&process.endpoint], None).await
            && client.get("/", None).await.is_ok()
        {
            return client;
        }
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_model_answers_as_real_etcd() {
    for seed in 0..SCRIPTS {
        let Some(process) = Process::start() else { return };
        let runtime = Runtime::real();
        let real = Script::run(seed, connected(&runtime, &process).await).await;
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let model = Client::connect_with_balanced_channel(["http://model"], None, etcd.transport());
        let model = Script::run(seed, model.await.unwrap()).await;
        for (step, (real, model)) in real.iter().zip(&model).enumerate() {
            assert_eq!(
                model, real,
                "seed {seed}, line {step}: the model (left) and etcd (right)"
            );
        }
        assert_eq!(real.len(), model.len());
    }
}
