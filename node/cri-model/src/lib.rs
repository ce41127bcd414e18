//! A containerd in memory, for tests: its messages, its answers, its deaths.
//!
//! [`Containerd::transport`] stands where [`node_cri::CriClient`] has its connection, so the client and everything above
//! it are the product's own. A call is decoded by tonic's server half ([`serve`]) and carried out in steps
//! ([`sandboxes`], [`containers`], [`images`]) on one state ([`store`]). Processes live beside the daemon ([`process`]):
//! they end while it is dead, and it finds that when it begins again ([`Containerd::begin`]). A container runs a
//! [`Program`], which is also a shell script, so that the real containerd runs the same. With a simulated runtime the
//! seed decides the [`FaultProfile`]: slow, lost and hanging calls, failing steps, lost events, bookkeeping behind its events.
//!
//! Answers are containerd 1.6's; the suite `likeness` of `node-kubelet` compares both. Unknown calls are refused by name.

mod containers;
mod events;
mod fault_profile;
mod images;
mod process;
mod program;
mod refusals;
mod sandboxes;
mod seen;
mod serve;
mod store;

pub use fault_profile::FaultProfile;
pub use program::Program;
pub use seen::{RuntimeEvent, SeenContainer, SeenSandbox};

use machinery_runtime::{CancellationToken, Runtime, Scope};
use node_cri::Transport;
use node_sys::cgroup::Cgroups;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;
use tokio::sync::Notify;

/// A container runtime. Dropping it ends everything that belongs to it.
#[derive(Debug)]
pub struct Containerd {
    machine: Arc<Machine>,
    _scope: Scope,
}

/// Daemon, processes and state.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Clock and tasks of what outlives the daemon.
    pub(crate) runtime: Runtime,
    pub(crate) groups: Arc<dyn Cgroups>,
    pub(crate) weather: Mutex<FaultProfile>,
    pub(crate) store: Mutex<Store>,
    /// The daemon's present life; none while it is dead.
    life: Mutex<Option<Life>>,
    /// Wakes calls that wait for a change of the state, in the order in which they came.
    changes: Notify,
    pub(crate) subscribers: events::Subscribers,
    pub(crate) happenings: Mutex<Vec<RuntimeEvent>>,
    /// Calls so far, by path.
    pub(crate) calls: Mutex<BTreeMap<String, usize>>,
    /// Sandboxes that start now, and the most that ever did at once.
    pub(crate) starting: Mutex<(usize, usize)>,
}

/// One life of the daemon.
#[derive(Debug)]
pub(crate) struct Life {
    scope: Scope,
    ended: CancellationToken,
}

impl Containerd {
    /// A runtime without images, whose containers have their groups in `groups`.
    pub fn start(runtime: &Runtime, weather: FaultProfile, groups: Arc<dyn Cgroups>) -> Self {
        let scope = runtime.child_scope();
        let machine = Machine {
            runtime: scope.runtime().clone(),
            groups,
            weather: Mutex::new(weather),
            store: Mutex::default(),
            life: Mutex::default(),
            changes: Notify::new(),
            subscribers: events::Subscribers::default(),
            happenings: Mutex::default(),
            calls: Mutex::default(),
            starting: Mutex::default(),
        };
        let containerd = Self {
            machine: Arc::new(machine),
            _scope: scope,
        };
        containerd.begin();
        containerd
    }

    /// The way to it, in place of a connection.
    pub fn transport(&self) -> Transport {
        let machine = Arc::clone(&self.machine);
        let call = move |request| serve::carry(Arc::clone(&machine), request);
        Transport::new(tower::service_fn(call))
    }

    /// The most sandboxes that ever started at once.
    pub fn sandboxes_started_at_once(&self) -> usize {
        self.machine.starting.lock().1
    }

    /// Changes the weather.
    pub fn set_weather(&self, weather: FaultProfile) {
        *self.machine.weather.lock() = weather;
    }

    /// `kill -9` of the daemon: calls break where they are, streams end, containers go on.
    pub fn kill(&self) {
        self.machine.subscribers.clear();
        let life = self.machine.life.lock().take();
        if let Some(life) = life {
            life.ended.cancel();
        }
    }

    /// A new life of the daemon, on the state that the last one left.
    pub fn begin(&self) {
        let mut life = self.machine.life.lock();
        if life.is_some() {
            return;
        }
        let ended = CancellationToken::new();
        let scope = self.machine.runtime.child_scope();
        *life = Some(Life { scope, ended });
        drop(life);
        self.machine.recover();
    }

    /// Puts an image there, as an import does.
    pub fn add_image(&self, name: &str) {
        let id = self.machine.new_id();
        self.machine.store.lock().add_image(name, &id);
    }

    /// Reads the names of the images that are there, whenever it is called.
    pub fn image_names(&self) -> impl Fn() -> Vec<String> + Clone + Send + Sync + 'static {
        let machine = Arc::clone(&self.machine);
        move || machine.store.lock().images.keys().cloned().collect()
    }

    /// Makes an image one that can be pulled.
    pub fn publish_image(&self, name: &str) {
        let id = self.machine.new_id();
        self.machine.store.lock().registry.insert(name.to_owned(), id);
    }

    /// A process outside ends a container's process, or a sandbox's.
    pub fn crash(&self, id: &str, exit_code: i32) {
        self.machine.end_process(id, exit_code);
    }

    /// The kernel kills a container's process for memory. The daemon learns of the end first, and of its reason after that.
    pub fn run_out_of_memory(&self, id: &str) {
        self.machine.end_for_memory(id);
    }

    /// Containers, the oldest first.
    pub fn containers(&self) -> Vec<SeenContainer> {
        seen::containers(&self.machine)
    }

    /// Sandboxes, the oldest first.
    pub fn sandboxes(&self) -> Vec<SeenSandbox> {
        seen::sandboxes(&self.machine)
    }

    /// Number of calls of a name, such as `ListContainers`, so far.
    pub fn calls(&self, name: &str) -> usize {
        let calls = self.machine.calls.lock();
        let ending = format!("/{name}");
        calls
            .iter()
            .filter(|(path, _)| path.ends_with(&ending))
            .map(|(_, count)| count)
            .sum()
    }

    /// Everything that was made, started, ended and removed so far.
    pub fn happenings(&self) -> Vec<RuntimeEvent> {
        self.machine.happenings.lock().clone()
    }
}

impl Machine {
    /// The runtime of the daemon's present life, and what says that it is over.
    pub(crate) fn life(&self) -> Option<(Runtime, CancellationToken)> {
        let life = self.life.lock();
        let life = life.as_ref()?;
        Some((life.scope.runtime().clone(), life.ended.clone()))
    }

    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.runtime.now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    pub(crate) fn new_id(&self) -> String {
        (0..4)
            .map(|_| format!("{:016x}", self.runtime.random_u64()))
            .collect()
    }

    pub(crate) fn note(&self, happening: RuntimeEvent) {
        self.happenings.lock().push(happening);
    }

    /// Something of the state has changed.
    pub(crate) fn changed(&self) {
        self.changes.notify_waiters();
    }

    /// Waits until the state is so.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&Store) -> bool) {
        loop {
            let changed = self.changes.notified();
            if is_so(&self.store.lock()) {
                return;
            }
            changed.await;
        }
    }
}
