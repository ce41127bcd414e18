//! One of several servers runs the controllers, however they are paused, cut off and killed.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_server::pki::Pki;
use apiserver_storage::{LogStorage, Storage};
use cluster::{Cluster, Faults, LeaderElection, Rates, Selection, identities};
use controllers_manager::leader_election::{ElectionConfig, Elector};
use k8s_openapi::List;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use machinery_client::{ApiResource, Client, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, Simulation, seeds};
use serde_json::json;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

const DEFAULT_SEEDS: u64 = 12;
const CANDIDATES: usize = 3;
/// Simulated time for each seed.
const STORY: Duration = Duration::from_secs(1200);

/// Stops whatever runs behind it, as a machine does that is suspended.
#[derive(Default)]
struct Gate(Mutex<(bool, Option<Waker>)>);

impl Gate {
    fn pause(&self, paused: bool) {
        let mut gate = self.0.lock().unwrap();
        gate.0 = paused;
        if let (false, Some(waker)) = (paused, gate.1.take()) {
            waker.wake();
        }
    }

    async fn run(&self, behind: impl Future<Output = ()>) {
        let mut behind = pin!(behind);
        poll_fn(|cx| {
            let mut gate = self.0.lock().unwrap();
            if gate.0 {
                gate.1 = Some(cx.waker().clone());
                return Poll::Pending;
            }
            drop(gate);
            behind.as_mut().poll(cx)
        })
        .await;
    }
}

/// Deeds of candidates, in order: the candidate and its term.
#[derive(Default)]
struct Deeds(Mutex<Vec<(usize, u64)>>);

impl Deeds {
    /// No term goes on after another one has begun; how many there were.
    fn terms(&self) -> usize {
        let deeds = self.0.lock().unwrap();
        let mut over = BTreeSet::new();
        for pair in deeds.windows(2).filter(|pair| pair[0] != pair[1]) {
            over.insert(pair[0]);
            assert!(
                !over.contains(&pair[1]),
                "{:?} acts although {:?} has begun",
                pair[1],
                pair[0]
            );
        }
        over.len() + 1
    }
}

/// One that does something every now and then while it leads.
async fn candidate(number: usize, client: Client, deeds: Arc<Deeds>) {
    let runtime = client.runtime().clone();
    let config = ElectionConfig::new("work", &format!("candidate-{number}"));
    let mut elector = Elector::new(config, client, "work");
    let leadership = elector.leadership();
    for term in 0.. {
        elector.acquire().await;
        let working = async {
            loop {
                if leadership.holds() {
                    deeds.0.lock().unwrap().push((number, term));
                }
                runtime
                    .sleep(Duration::from_millis(1 + runtime.random_u64() % 200))
                    .await;
            }
        };
        tokio::select! {
            biased;
            // First, as loops may well run before the one that would stop them.
            () = working => {}
            () = elector.hold() => {}
        }
    }
}

/// Pauses one, or cuts it off, for longer than a lease lasts or not; then lets it go on.
async fn mishap(runtime: &Runtime, gate: &Gate, faults: &Faults) {
    let long = Duration::from_millis(500 + runtime.random_u64() % 40_000);
    match runtime.random_u64() % 3 {
        0 => {
            gate.pause(true);
            runtime.sleep(long).await;
            gate.pause(false);
        }
        1 => {
            let none = Rates {
                lose_request: 1000,
                ..Rates::SOME
            };
            faults.set(none);
            runtime.sleep(long).await;
        }
        _ => {
            // What is requested happens, and its answer is lost.
            let deaf = Rates {
                lose_answer: 1000,
                delay: 1000,
                longest_delay: Duration::from_secs(8),
                ..Rates::SOME
            };
            faults.set(deaf);
            runtime.sleep(long).await;
        }
    }
    faults.set(Rates::SOME);
}

async fn election(runtime: Runtime) -> usize {
    let cluster = Cluster::builder().runtime(runtime.clone()).start().await.unwrap();
    let deeds = Arc::new(Deeds::default());
    let all: Vec<_> = (0..CANDIDATES)
        .map(|number| {
            let (gate, faults) = (Arc::new(Gate::default()), Faults::new(Rates::SOME));
            let (own, deeds) = (Arc::clone(&gate), Arc::clone(&deeds));
            let client = cluster.client_through(identities::admin(), &faults);
            let running = async move { own.run(candidate(number, client, deeds)).await };
            cluster.runtime().spawn("candidate", running).detach();
            (gate, faults)
        })
        .collect();
    let end = runtime.monotonic() + STORY;
    while runtime.monotonic() < end {
        runtime
            .sleep(Duration::from_millis(runtime.random_u64() % 20_000))
            .await;
        let (gate, faults) = &all[usize::try_from(runtime.random_u64()).unwrap() % CANDIDATES];
        mishap(&runtime, gate, faults).await;
    }
    // Healed, one of them leads.
    let before = deeds.0.lock().unwrap().len();
    runtime.sleep(Duration::from_secs(60)).await;
    assert!(deeds.0.lock().unwrap().len() > before, "no leader does any work");
    deeds.terms()
}

#[test]
fn leader_election_has_one_leader_at_a_time_however_paused_and_cut_off() {
    let mut terms = 0;
    for seed in seeds(DEFAULT_SEEDS) {
        let told = std::panic::catch_unwind(|| {
            let simulation = Simulation::new(seed);
            simulation.run(election(simulation.runtime()))
        });
        terms += told.unwrap_or_else(|_| panic!("seed {seed} failed"));
    }
    let runs = seeds(DEFAULT_SEEDS).count();
    assert!(terms > 5 * runs, "{terms} terms in {runs} stories");
}

/// A guard against hanging, in simulated time.
const PATIENCE: Duration = Duration::from_secs(120);

async fn until<F: Future<Output = bool>>(runtime: &Runtime, what: &str, look: impl Fn() -> F) -> Duration {
    let begun = runtime.monotonic();
    while !look().await {
        assert!(
            runtime.monotonic() - begun < PATIENCE,
            "waited in vain until {what}"
        );
        runtime.sleep(Duration::from_millis(100)).await;
    }
    runtime.monotonic() - begun
}

async fn server(runtime: &Runtime, storage: &Arc<dyn Storage>, keys: &Arc<Pki>, name: &str) -> Cluster {
    Cluster::builder()
        .runtime(runtime.clone())
        .storage(Arc::clone(storage))
        .keys(Arc::clone(keys))
        .controllers(Selection::Default)
        .scheduler()
        .leader_election(Some(LeaderElection::new(name)))
        .start()
        .await
        .unwrap()
}

async fn pods(client: &Client) -> usize {
    let list: List<Pod> = client
        .list_as(&ApiResource::of::<Pod>(), "default", &[])
        .await
        .unwrap();
    list.items.len()
}

async fn holder(client: &Client, lease: &str) -> String {
    let key = ObjectKey::new("kube-system", lease);
    let found: Result<Lease, _> = client.get_as(&ApiResource::of::<Lease>(), &key).await;
    let spec = found.ok().and_then(|lease| lease.spec);
    spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

async fn scale(client: &Client, replicas: u32) {
    let (resource, key) = (ApiResource::of::<Deployment>(), ObjectKey::new("default", "web"));
    let body = json!({"spec": {"replicas": replicas}});
    client
        .patch(&resource, &key, "", &Patch::Merge, &body)
        .await
        .unwrap();
}

/// The second of two servers takes over: at once from one that was stopped, after the lease from one that was killed.
async fn two_servers(runtime: Runtime, killed: bool) -> Duration {
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
    let keys = Arc::new(Pki::generate(&["localhost".to_owned()].into(), runtime.now()).unwrap());
    let one = server(&runtime, &storage, &keys, "one").await;
    let first = one.admin();
    until(&runtime, "the first leads", async || {
        holder(&first, "kube-scheduler").await == "one"
    })
    .await;
    let other = server(&runtime, &storage, &keys, "other").await;
    let client = other.admin();
    let account = ObjectKey::new("default", "default");
    until(&runtime, "there is an account", async || {
        client
            .get(&ApiResource::of::<ServiceAccount>(), &account)
            .await
            .is_ok()
    })
    .await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    client
        .create(&ApiResource::of::<Deployment>(), "default", &deployment)
        .await
        .unwrap();
    until(&runtime, "there are two pods", async || pods(&client).await == 2).await;
    for lease in ["kube-controller-manager", "kube-scheduler"] {
        assert_eq!(holder(&client, lease).await, "one");
    }
    drop(first);
    let mut one = Some(one);
    if killed {
        drop(one.take());
    } else if let Some(one) = &mut one {
        // The storage is shared here and would close with the server, so its components alone are stopped.
        one.stop_components().await;
    }
    scale(&client, 5).await;
    let took = until(&runtime, "the other takes over", async || {
        pods(&client).await == 5
    })
    .await;
    for lease in ["kube-controller-manager", "kube-scheduler"] {
        until(&runtime, "the other leads", async || {
            holder(&client, lease).await == "other"
        })
        .await;
    }
    let events: List<Event> = client
        .list_as(&ApiResource::of::<Event>(), "kube-system", &[])
        .await
        .unwrap();
    let said = |what: &str| {
        events
            .items
            .iter()
            .any(|event| event.message.as_deref() == Some(what))
    };
    assert!(said("one became leader") && said("other became leader"));
    assert_eq!(said("one stopped leading"), !killed);
    took
}

#[test]
fn leader_election_hands_over_when_a_server_stops_or_is_killed() {
    for (killed, most) in [(true, Duration::from_secs(25)), (false, Duration::from_secs(8))] {
        let simulation = Simulation::new(7);
        let runtime = simulation.runtime();
        let took = simulation.run(two_servers(runtime, killed));
        assert!(took < most, "killed: {killed}, {took:?}");
    }
}
