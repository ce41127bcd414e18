//! The loop around [`Scheduler`]: informers in, bindings out.
//!
//! One task owns the scheduler. It first takes in what changed, then decides about a few pods, and again.
//! Bindings and the rest run in tasks of their own, as many at a time as [`MAX_IN_FLIGHT`].

use crate::actions::Actions;
use crate::object::Labels;
use crate::owner_selectors::OwnerKind;
use crate::pod::PodInfo;
use crate::projections::{BudgetView, FullSelector, MapSelector, NodeView, PodView};
use crate::scheduler::{Decision, Scheduler};
use crate::volumes::Reservation;
use crate::volumes::scheduling::PRE_BIND;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use machinery_client::{Client, ClientError, DirtyKeys, Informer, Informers, ListWatch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::{Runtime, TaskHandle};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bindings and rejections being carried out at the same time.
pub const MAX_IN_FLIGHT: usize = 256;
/// Pods that ended hold nothing; upstream does not watch them either.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Starts the scheduler; it runs until its scope ends. The client's identity is `system:kube-scheduler`.
pub fn start(client: Client, runtime: Runtime) -> TaskHandle<()> {
    let inside = runtime.clone();
    runtime.spawn("scheduler", async move {
        let client = client.with_user_agent("kube-scheduler");
        let sources = Sources::new(&Informers::new(client.clone(), inside.clone()));
        sources.synced().await;
        let (done, results) = mpsc::channel(MAX_IN_FLIGHT);
        let actions = Actions::new(client, inside.clone());
        let driver = Driver {
            scheduler: Scheduler::default(),
            sources,
            actions,
            runtime: inside,
            done,
            in_flight: 0,
        };
        driver.run(results).await;
    })
}

/// One watched kind.
struct Source<P: Projection> {
    informer: Informer<P>,
    dirty: DirtyKeys,
}

impl<P: Projection> Source<P> {
    fn new(informer: Informer<P>) -> Self {
        Self {
            dirty: informer.dirty_keys(),
            informer,
        }
    }
}

struct Sources {
    pods: Source<PodView>,
    nodes: Source<NodeView>,
    namespaces: Source<LabelsView>,
    services: Source<MapSelector>,
    controllers: Source<MapSelector>,
    replica_sets: Source<FullSelector>,
    stateful_sets: Source<FullSelector>,
    budgets: Source<BudgetView>,
    claims: Source<ClaimView>,
    volumes: Source<VolumeView>,
    classes: Source<ClassView>,
    csi_nodes: Source<CsiNodeView>,
    drivers: Source<DriverView>,
    capacities: Source<CapacityView>,
    attachments: Source<AttachmentView>,
}

/// A namespace's labels.
pub(crate) struct LabelsView(Labels);

impl Projection for LabelsView {
    fn project(header: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self(header.labels.iter().cloned().collect()))
    }
}

/// Keys of one kind that changed.
enum Changed {
    Pods(BTreeSet<ObjectKey>),
    Nodes(BTreeSet<ObjectKey>),
    Namespaces(BTreeSet<ObjectKey>),
    Services(BTreeSet<ObjectKey>),
    Controllers(BTreeSet<ObjectKey>),
    ReplicaSets(BTreeSet<ObjectKey>),
    StatefulSets(BTreeSet<ObjectKey>),
    Budgets(BTreeSet<ObjectKey>),
    Claims(BTreeSet<ObjectKey>),
    Volumes(BTreeSet<ObjectKey>),
    Classes(BTreeSet<ObjectKey>),
    CsiNodes(BTreeSet<ObjectKey>),
    Drivers(BTreeSet<ObjectKey>),
    Capacities(BTreeSet<ObjectKey>),
    Attachments(BTreeSet<ObjectKey>),
}

impl Sources {
    fn new(informers: &Informers) -> Self {
        Self {
            pods: Source::new(informers.informer(ListWatch::of::<Pod>().fields(LIVE_PODS))),
            nodes: Source::new(informers.of::<Node, _>()),
            namespaces: Source::new(informers.of::<Namespace, _>()),
            services: Source::new(informers.of::<Service, _>()),
            controllers: Source::new(informers.of::<ReplicationController, _>()),
            replica_sets: Source::new(informers.of::<ReplicaSet, _>()),
            stateful_sets: Source::new(informers.of::<StatefulSet, _>()),
            budgets: Source::new(informers.of::<PodDisruptionBudget, _>()),
            claims: Source::new(informers.of::<PersistentVolumeClaim, _>()),
            volumes: Source::new(informers.of::<PersistentVolume, _>()),
            classes: Source::new(informers.of::<StorageClass, _>()),
            csi_nodes: Source::new(informers.of::<CSINode, _>()),
            drivers: Source::new(informers.of::<CSIDriver, _>()),
            capacities: Source::new(informers.of::<CSIStorageCapacity, _>()),
            attachments: Source::new(informers.of::<VolumeAttachment, _>()),
        }
    }

    /// What decides where a pod may go must be known before the first decision; a missing selector only makes one less
    /// even.
    async fn synced(&self) {
        self.nodes.informer.synced().await;
        self.pods.informer.synced().await;
        self.namespaces.informer.synced().await;
        self.claims.informer.synced().await;
        self.volumes.informer.synced().await;
        self.classes.informer.synced().await;
        self.csi_nodes.informer.synced().await;
        self.drivers.informer.synced().await;
        self.capacities.informer.synced().await;
        self.attachments.informer.synced().await;
    }

    /// Nodes and claims before pods, so that a pod is not tried before what came with it.
    async fn changed(&mut self) -> Changed {
        tokio::select! { biased;
            keys = self.namespaces.dirty.next_batch() => Changed::Namespaces(keys),
            keys = self.nodes.dirty.next_batch() => Changed::Nodes(keys),
            keys = self.services.dirty.next_batch() => Changed::Services(keys),
            keys = self.controllers.dirty.next_batch() => Changed::Controllers(keys),
            keys = self.replica_sets.dirty.next_batch() => Changed::ReplicaSets(keys),
            keys = self.stateful_sets.dirty.next_batch() => Changed::StatefulSets(keys),
            keys = self.budgets.dirty.next_batch() => Changed::Budgets(keys),
            keys = self.classes.dirty.next_batch() => Changed::Classes(keys),
            keys = self.csi_nodes.dirty.next_batch() => Changed::CsiNodes(keys),
            keys = self.drivers.dirty.next_batch() => Changed::Drivers(keys),
            keys = self.capacities.dirty.next_batch() => Changed::Capacities(keys),
            keys = self.attachments.dirty.next_batch() => Changed::Attachments(keys),
            keys = self.volumes.dirty.next_batch() => Changed::Volumes(keys),
            keys = self.claims.dirty.next_batch() => Changed::Claims(keys),
            keys = self.pods.dirty.next_batch() => Changed::Pods(keys),
        }
    }
}

/// How carrying out a decision went.
enum Outcome {
    Bound(Arc<PodInfo>),
    BindingFailed(Arc<PodInfo>),
    /// The pod waits for its claims; none of the bindings at the same time is it.
    Reserved(Arc<PodInfo>, Box<str>, Reservation),
    NotReserved(Arc<PodInfo>, Reservation),
    Told,
}

struct Driver {
    scheduler: Scheduler,
    sources: Sources,
    actions: Actions,
    runtime: Runtime,
    done: mpsc::Sender<Outcome>,
    in_flight: usize,
}

/// What the loop woke up for.
enum WakeReason {
    Changed(Changed),
    Done(Outcome),
    Decide,
}

impl Driver {
    async fn run(mut self, mut results: mpsc::Receiver<Outcome>) {
        loop {
            let now = self.runtime.monotonic();
            let may = self.in_flight < MAX_IN_FLIGHT;
            let due = self.scheduler.next_wake().filter(|_| may);
            let wait = wait(&self.runtime, may && self.scheduler.has_work(now), due);
            let woken = tokio::select! { biased;
                Some(outcome) = results.recv() => WakeReason::Done(outcome),
                changed = self.sources.changed() => WakeReason::Changed(changed),
                () = wait => WakeReason::Decide,
            };
            match woken {
                WakeReason::Changed(changed) => self.take_in(changed),
                WakeReason::Done(outcome) => self.finished(outcome),
                WakeReason::Decide => loop {
                    self.decide().await;
                    tokio::task::yield_now().await;
                    // Others have their turn, and nothing changes in what the dry run looks at.
                    if !self.scheduler.is_in_dry_run() {
                        break;
                    }
                },
            }
        }
    }

    async fn decide(&mut self) {
        let room = MAX_IN_FLIGHT.saturating_sub(self.in_flight);
        let (runtime, now) = (self.runtime.clone(), self.runtime.monotonic());
        let decisions = if self.scheduler.is_heavy_next(now) {
            self.decide_on_own_thread(now, room).await
        } else {
            self.scheduler.decide_burst(now, room, || runtime.random_u64())
        };
        for decision in decisions {
            self.in_flight += 1;
            let (actions, done) = (self.actions.clone(), self.done.clone());
            let carry_out = async move {
                // The driver holds the receiver for as long as it runs.
                let _ = done.send(carry_out(&actions, decision).await).await;
            };
            self.runtime.spawn("scheduler binding", carry_out).detach();
        }
    }

    /// Decides where nobody waits for the thread; what changed meanwhile is taken in afterwards.
    async fn decide_on_own_thread(&mut self, now: Duration, room: usize) -> Vec<Decision> {
        let (mut scheduler, runtime) = (std::mem::take(&mut self.scheduler), self.runtime.clone());
        let deciding = self.runtime.blocking(move || {
            let decisions = scheduler.decide_burst(now, room, || runtime.random_u64());
            (scheduler, decisions)
        });
        // A panic in there took the scheduler with it: the component begins anew.
        let (scheduler, decisions) = deciding.await.expect("the decision was not cut off");
        self.scheduler = scheduler;
        decisions
    }

    fn finished(&mut self, outcome: Outcome) {
        self.in_flight -= 1;
        match outcome {
            Outcome::Bound(pod) => self.scheduler.bound(&pod),
            Outcome::BindingFailed(pod) => self.scheduler.binding_failed(&pod, self.runtime.monotonic()),
            Outcome::Reserved(pod, node, reservation) => {
                let now = self.runtime.monotonic();
                self.scheduler.volumes_written(&pod, &node, reservation, now);
            }
            Outcome::NotReserved(pod, reservation) => {
                let now = self.runtime.monotonic();
                self.scheduler.volumes_not_written(&pod, &reservation, now);
            }
            Outcome::Told => {}
        }
    }

    fn take_in(&mut self, changed: Changed) {
        let now = self.runtime.monotonic();
        let (scheduler, sources) = (&mut self.scheduler, &self.sources);
        match changed {
            Changed::Pods(keys) => each(&sources.pods, &keys, |key, pod| {
                scheduler.pod_changed(key, pod.map(|pod| &pod.0), now);
            }),
            Changed::Nodes(keys) => each(&sources.nodes, &keys, |key, node| {
                scheduler.node_changed(&key.name, node.map(|node| &node.0), now);
            }),
            Changed::Namespaces(keys) => each(&sources.namespaces, &keys, |key, namespace| {
                scheduler.namespace_changed(&key.name, namespace.map(|namespace| namespace.0.clone()), now);
            }),
            Changed::Services(keys) => each(&sources.services, &keys, |key, service| {
                scheduler.owner_changed(OwnerKind::Service, key, service.map(|service| service.0.clone()));
            }),
            Changed::Controllers(keys) => each(&sources.controllers, &keys, |key, own| {
                scheduler.owner_changed(
                    OwnerKind::ReplicationController,
                    key,
                    own.map(|own| own.0.clone()),
                );
            }),
            Changed::ReplicaSets(keys) => each(&sources.replica_sets, &keys, |key, own| {
                scheduler.owner_changed(OwnerKind::ReplicaSet, key, own.map(|own| own.0.clone()));
            }),
            Changed::StatefulSets(keys) => each(&sources.stateful_sets, &keys, |key, own| {
                scheduler.owner_changed(OwnerKind::StatefulSet, key, own.map(|own| own.0.clone()));
            }),
            Changed::Claims(keys) => each(&sources.claims, &keys, |key, claim| {
                scheduler.claim_changed(key, claim.map(|claim| claim.0.clone()), now);
            }),
            Changed::Volumes(keys) => each(&sources.volumes, &keys, |key, volume| {
                scheduler.volume_changed(&key.name, volume.map(|volume| volume.0.clone()), now);
            }),
            Changed::Classes(keys) => each(&sources.classes, &keys, |key, class| {
                scheduler.class_changed(&key.name, class.map(|class| class.0.clone()), now);
            }),
            Changed::CsiNodes(keys) => each(&sources.csi_nodes, &keys, |key, node| {
                scheduler.csi_node_changed(&key.name, node.map(|node| node.0.clone()), now);
            }),
            Changed::Drivers(keys) => each(&sources.drivers, &keys, |key, driver| {
                scheduler.driver_changed(&key.name, driver.map(|driver| driver.0), now);
            }),
            Changed::Capacities(keys) => each(&sources.capacities, &keys, |key, capacity| {
                scheduler.capacity_changed(key, capacity.map(|capacity| capacity.0.clone()), now);
            }),
            Changed::Attachments(keys) => each(&sources.attachments, &keys, |key, attachment| {
                scheduler.attachment_changed(&key.name, attachment.map(|own| own.0.clone()), now);
            }),
            Changed::Budgets(keys) => each(&sources.budgets, &keys, |key, budget| {
                scheduler.budget_changed(key, budget.map(|budget| budget.0.clone()));
            }),
        }
    }
}

fn each<P: Projection>(
    source: &Source<P>,
    keys: &BTreeSet<ObjectKey>,
    mut apply: impl FnMut(&ObjectKey, Option<&P>),
) {
    for key in keys {
        let object = source.informer.get(key);
        apply(key, object.as_ref().map(|object| &object.projection));
    }
}

/// Ready at once when there is something to decide, else when a waiting pod is due.
async fn wait(runtime: &Runtime, busy: bool, due: Option<Duration>) {
    match (busy, due) {
        (true, _) => {}
        (false, Some(due)) => runtime.sleep_until(due).await,
        (false, None) => std::future::pending().await,
    }
}

async fn carry_out(actions: &Actions, decision: Decision) -> Outcome {
    match decision {
        Decision::Bind { pod, node } => match actions.bind(&pod, &node).await {
            Ok(()) => Outcome::Bound(pod),
            Err(error) => {
                if !pod_is_gone(&error) {
                    let message = format!("binding rejected: {}", error.chain());
                    tracing::warn!(pod = %pod.key, %node, %message);
                    actions.failed(&pod, &message).await;
                }
                Outcome::BindingFailed(pod)
            }
        },
        Decision::Reserve {
            pod,
            node,
            reservation,
        } => reserve(actions, pod, node, reservation).await,
        Decision::Fail { pod, message } => {
            tracing::warn!(pod = %pod.key, %message);
            actions.failed(&pod, &message).await;
            Outcome::BindingFailed(pod)
        }
        Decision::Reject {
            pod,
            message,
            preemption,
        } => {
            tracing::debug!(pod = %pod.key, %message, "no node fits");
            actions.reject(&pod, &message, preemption).await;
            Outcome::Told
        }
    }
}

async fn reserve(
    actions: &Actions,
    pod: Arc<PodInfo>,
    node: Box<str>,
    mut reservation: Reservation,
) -> Outcome {
    match actions.reserve(&node, &mut reservation).await {
        Ok(()) => Outcome::Reserved(pod, node, reservation),
        Err(error) => {
            let message = format!("{PRE_BIND}: {}", error.chain());
            tracing::warn!(pod = %pod.key, %node, %message);
            actions.failed(&pod, &message).await;
            Outcome::NotReserved(pod, reservation)
        }
    }
}

fn pod_is_gone(error: &ClientError) -> bool {
    error.is_not_found() || error.is_conflict()
}
