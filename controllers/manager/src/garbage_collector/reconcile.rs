//! Checks one object of the graph against the live API, and acts.
//!
//! A look requests no more than so many objects, and goes on from there in its next turn: namespaces take turns, so that
//! one with thousands of invented owners does not keep the others waiting.

use super::absent_owners::Epoch;
use super::dispatch::Dispatcher;
use super::finalizers::{FOREGROUND, ORPHAN, propagation_of};
use super::graph::Graph;
use super::keys::Key;
use super::live::Live;
use super::monitors::Monitors;
use super::node::Node;
use super::owner_state::{Findings, OwnerState};
use futures::future::BoxFuture;
use machinery_client::{ApiResource, Client, Propagation};
use machinery_meta::{ObjectKey, OwnerRef, Revision, Uid};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Counter, Family};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Interval of checks whether the stores are filled, and first requeue interval of an object whose owner's store is not;
/// the latter doubles each time.
const STORES_FILLING: Duration = Duration::from_millis(200);
/// Longest requeue interval of an object, as of upstream's queue.
const LONGEST_WAIT: Duration = Duration::from_secs(1000);
/// Time after which attempts begin although a store is not filled (upstream's `initialSyncTimeout`): owners that it may hold are
/// read from the live API.
pub(super) const INITIAL_SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests of one attempt.
pub(super) const LOOKUPS_PER_TURN: usize = 32;
/// Delay of the second discovery: a new CRD is served a moment after its condition says so.
const DISCOVERY_AGAIN: Duration = Duration::from_secs(2);

const SYNC_ERRORS: Family = Family::new(
    "garbagecollector_controller_resources_sync_error_total",
    "[ALPHA] Number of garbage collector resources sync errors",
    &[],
);

pub(super) struct Collector {
    pub(super) client: Client,
    runtime: Runtime,
    pub(super) graph: Arc<Graph>,
    pub(super) monitors: Monitors,
    pub(super) dispatcher: Arc<Dispatcher>,
    /// Time of the first check of the stores.
    began: OnceLock<Duration>,
    /// Looks that go on in their next turn.
    begun: OngoingAttempts,
    sync_errors: Counter,
}

/// Progress of unfinished attempts, by uid. An attempt that ends or finds its object gone removes its entry.
#[derive(Debug, Default)]
struct OngoingAttempts(Mutex<BTreeMap<Uid, Progress>>);

#[derive(Debug)]
enum Progress {
    Owners(Owners),
    /// The last dependent that was set free.
    Orphaned(Uid),
}

/// Findings about the owners of one version of an object.
#[derive(Debug)]
struct Owners {
    of: Revision,
    /// Epoch in which they were found absent, of all their kinds.
    epoch: Epoch,
    absent: Vec<bool>,
    /// Number of waits for an object that may come.
    waits: u32,
}

impl OngoingAttempts {
    fn take(&self, uid: &Uid) -> Option<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid)
    }

    fn put(&self, uid: &Uid, progress: Progress) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(uid.clone(), progress);
    }
}

impl Reconciler for Collector {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Discovery => self.discover().await,
                Key::Stores => Ok(self.begin()),
                Key::Delete(object) => self.attempt_to_delete(&object.uid).await,
                Key::Orphan(object) => self.orphan(&object.uid).await,
            }
        })
    }
}

impl Collector {
    pub(super) fn new(
        client: Client,
        runtime: Runtime,
        graph: Arc<Graph>,
        monitors: Monitors,
        dispatcher: Arc<Dispatcher>,
    ) -> Self {
        Self {
            sync_errors: runtime.metrics().counters(&SYNC_ERRORS).of(&[]),
            client,
            runtime,
            graph,
            monitors,
            dispatcher,
            began: OnceLock::new(),
            begun: OngoingAttempts::default(),
        }
    }

    /// Lets looks begin once all stores are filled, or have had long enough: one that never is ends no collection.
    fn begin(&self) -> Outcome {
        let now = self.runtime.monotonic();
        let waited = now.saturating_sub(*self.began.get_or_init(|| now));
        if !self.monitors.have_synced() {
            if waited < INITIAL_SYNC_TIMEOUT {
                return Outcome::RequeueAfter(STORES_FILLING);
            }
            tracing::info!("not all resource monitors could be synced, proceeding anyways");
        }
        self.dispatcher.begin();
        Outcome::Done
    }

    /// Finds out what is served, and counts where that fails.
    async fn discover(&self) -> Result<Outcome, ReconcileError> {
        let outcome = self.discover_twice().await;
        if outcome.is_err() {
            self.sync_errors.inc();
        }
        outcome
    }

    async fn discover_twice(&self) -> Result<Outcome, ReconcileError> {
        let discovered = self
            .client
            .discover()
            .await
            .map_err(ReconcileError::doing("discovering what is served"))?;
        self.monitors.serve(&discovered);
        // Once more after a change, for kinds that were not served yet; then quiet until the next.
        self.runtime.sleep(DISCOVERY_AGAIN).await;
        let discovered = self
            .client
            .discover()
            .await
            .map_err(ReconcileError::doing("discovering what is served"))?;
        self.monitors.serve(&discovered);
        Ok(discovered
            .again_after()
            .map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    async fn attempt_to_delete(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let begun = self.begun.take(uid);
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        // Deleted already; only a foreground deletion has something left to do here.
        if node.is_deleting() && !node.waits_for_dependents() {
            return Ok(Outcome::Done);
        }
        let live = self.live(&node.resource, &node.header.key).await?;
        let Some(live) = live.filter(|live| live.header.uid == *uid) else {
            // Read live, and compared by uid: the graph is behind, and a deletion cannot be undone.
            return Ok(self.lost(uid));
        };
        if node.waits_for_dependents() {
            return self.foreground(&node.resource, live).await;
        }
        if live.header.owners.is_empty() || live.header.is_deleting() {
            return Ok(Outcome::Done);
        }
        // Before owners are looked up: what is found about them is outdated if their kind's store lists again
        // meanwhile.
        let epoch = self.dispatcher.absent.epoch(&live.header.owners);
        let owners = match begun {
            Some(Progress::Owners(own)) if own.of == live.revision && own.epoch == epoch => own,
            _ => Owners {
                of: live.revision,
                epoch,
                absent: vec![false; live.header.owners.len()],
                waits: 0,
            },
        };
        self.judge(&node.resource, live, owners).await
    }

    /// Reads an object; nothing where it is not there.
    pub(super) async fn live(
        &self,
        resource: &ApiResource,
        key: &ObjectKey,
    ) -> Result<Option<Live>, ReconcileError> {
        match self.client.get(resource, key).await.and_then(Live::parse) {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(ReconcileError::doing("reading an object")(error)),
        }
    }

    /// An object with owners: keep it while one is solid, else delete it.
    async fn judge(
        &self,
        resource: &ApiResource,
        live: Live,
        mut owners: Owners,
    ) -> Result<Outcome, ReconcileError> {
        let uid = &live.header.uid;
        let found = match self.standings(&live.header, &mut owners.absent).await {
            Ok(Findings::All(found)) => found,
            Ok(Findings::Invalid) => return Ok(Outcome::Done),
            Ok(Findings::Unresolved) => return Ok(self.wait(uid, owners)),
            unfinished => {
                self.begun.put(uid, Progress::Owners(owners));
                return unfinished.map(|_| Outcome::RequeueAfter(Duration::ZERO));
            }
        };
        if found.has(OwnerState::Solid) {
            // Absent and waiting owners are removed from the references, so that their end does not concern
            // this object again.
            if !found.all(OwnerState::Solid) {
                let kept = found.keep(live.references()?, OwnerState::Solid);
                self.write_owners(resource, &live, &kept).await?;
            }
            return Ok(match found.unseen {
                true => self.wait(uid, owners),
                false => Outcome::Done,
            });
        }
        let dependents = match found.has(OwnerState::Waiting) {
            true => self.graph.dependents(uid),
            false => Vec::new(),
        };
        if dependents.is_empty() {
            let propagation = propagation_of(&live.header);
            return self.delete(resource, &live, live.revision, propagation).await;
        }
        let mut revision = live.revision;
        let blocks = live.header.owners.iter().any(|own| own.block_owner_deletion);
        if blocks && dependents.iter().any(Node::waits_for_dependents) {
            // Two that wait for each other: this one stops blocking its owners.
            match self
                .write_owners(resource, &live, &unblocked(live.references()?))
                .await?
            {
                Some(written) => revision = written,
                None => return Ok(self.lost(uid)),
            }
        }
        self.delete(resource, &live, revision, Propagation::Foreground)
            .await
    }

    /// The object is reconciled again after a while, longer each time: no event says when what it waits for comes.
    fn wait(&self, uid: &Uid, mut owners: Owners) -> Outcome {
        let wait = STORES_FILLING.saturating_mul(2_u32.saturating_pow(owners.waits));
        owners.waits += 1;
        self.begun.put(uid, Progress::Owners(owners));
        Outcome::RequeueAfter(wait.min(LONGEST_WAIT))
    }

    /// An object that waits for its dependents: lets it go once none blocks it.
    async fn foreground(&self, resource: &ApiResource, live: Live) -> Result<Outcome, ReconcileError> {
        let uid = &live.header.uid;
        let dependents = self.graph.dependents(uid);
        let blocking: Vec<_> = dependents.into_iter().filter(|own| own.blocks(uid)).collect();
        if blocking.is_empty() {
            return self.remove_finalizer(resource, live, FOREGROUND).await;
        }
        let waiting = blocking.iter().filter(|own| !own.is_deleting());
        self.dispatcher
            .look_at(waiting.map(|own| Key::Delete(own.object())).collect());
        Ok(Outcome::Done)
    }

    /// Sets the dependents free, those of a turn at once, then lets the object go. Upstream has a goroutine for each
    /// dependent; here a turn bounds them.
    async fn orphan(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let begun = self.begun.take(uid);
        let Some(node) = self.graph.get(uid) else {
            return Ok(Outcome::Done);
        };
        let mut last = match begun {
            Some(Progress::Orphaned(last)) => Some(last),
            _ => None,
        };
        let dependents = self.graph.dependents_after(uid, last.as_ref(), LOOKUPS_PER_TURN);
        let is_done = dependents.len() < LOOKUPS_PER_TURN;
        let freed = dependents.iter().map(|own| self.set_free(&node, own));
        let freed = futures::future::join_all(freed).await;
        // Only up to the first failure: the next attempt begins behind the last dependent that is free.
        let before_failure = freed.iter().take_while(|own| own.is_ok()).count();
        if let Some(freed) = dependents[..before_failure].last() {
            last = Some(freed.header.uid.clone());
        }
        let failed = freed.into_iter().find_map(Result::err);
        if failed.is_some() || !is_done {
            if let Some(last) = last {
                self.begun.put(uid, Progress::Orphaned(last));
            }
            return failed.map_or(Ok(Outcome::RequeueAfter(Duration::ZERO)), Err);
        }
        let live = self.live(&node.resource, &node.header.key).await?;
        match live.filter(|live| live.header.uid == *uid) {
            Some(live) => self.remove_finalizer(&node.resource, live, ORPHAN).await,
            None => Ok(self.lost(uid)),
        }
    }

    /// Takes the owner from a dependent's references.
    async fn set_free(&self, owner: &Node, dependent: &Node) -> Result<(), ReconcileError> {
        let live = self.live(&dependent.resource, &dependent.header.key).await?;
        let Some(live) = live.filter(|live| live.header.uid == dependent.header.uid) else {
            return Ok(());
        };
        let owners = &live.header.owners;
        let namespace = &live.header.key.namespace;
        let stays = |own: &OwnerRef| own.uid != owner.header.uid || !owner.may_free(own, namespace);
        if owners.iter().all(stays) {
            return Ok(());
        }
        let all = live.references()?.into_iter().zip(owners);
        let others = all.filter(|(_, own)| stays(own));
        let kept: Vec<Value> = others.map(|(reference, _)| reference).collect();
        self.write_owners(&dependent.resource, &live, &kept)
            .await
            .map(drop)
    }
}

/// The references, none of which blocks its owner.
fn unblocked(mut references: Vec<Value>) -> Vec<Value> {
    for reference in &mut references {
        if reference["blockOwnerDeletion"] == json!(true) {
            reference["blockOwnerDeletion"] = json!(false);
        }
    }
    references
}
