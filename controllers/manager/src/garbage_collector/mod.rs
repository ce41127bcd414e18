//! Deletes objects that have no owner any more, in whichever order its owners requested: background, foreground, orphan.
//!
//! Watches: every resource that discovery says can be listed, watched and deleted, custom ones included, by headers
//! only; a change of CRDs or APIServices asks discovery again. Looks begin once all stores are filled, or after half a
//! minute. The [`graph`] holds owners and dependents. Owners that are absent there are read from the live API before anything is
//! deleted, and every delete carries the uid and revision it was decided on. Cycles under foreground deletion are opened by
//! unblocking references. A cluster-scoped object that names a namespaced owner is never collected.
//! A user who may write objects may invent thousands of owners: they take little memory, namespaces take turns, and a turn asks
//! for so many objects and no more.
//! Never: polls discovery, decodes more than metadata.

mod absent_owners;
#[cfg(test)]
mod api;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod conflicting;
mod dispatch;
mod effects;
#[cfg(test)]
mod extensions;
mod finalizers;
mod graph;
mod keys;
mod live;
#[cfg(test)]
mod looks;
mod monitors;
#[cfg(test)]
mod namespace_shares;
mod node;
mod owner_state;
mod reconcile;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod tests;
mod uids;
mod writes;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use dispatch::Dispatcher;
use futures::future::BoxFuture;
use graph::Graph;
use keys::Key;
use machinery_client::{Client, Informers};
use machinery_reconcile::{Controller, EventRecorder};
use machinery_runtime::Runtime;
use monitors::Monitors;
use reconcile::Collector;
use std::sync::Arc;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "garbage-collector-controller",
    queue: "garbage_collector_attempt_to_delete",
    service_account: "generic-garbage-collector",
    default: true,
    start,
};

/// `--concurrent-gc-syncs`.
const WORKERS: usize = 20;

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let (controller, collector) = assemble(&context.informers, client, &context.runtime);
    collector.monitors.watch_kinds(&controller.queue());
    controller.queue().add(Key::Discovery);
    controller.run(collector)
}

fn assemble(informers: &Informers, client: Client, runtime: &Runtime) -> (Controller<Collector>, Collector) {
    let controller = ROW.controller::<Collector>(runtime).workers(WORKERS);
    let graph = Arc::new(Graph::default());
    let queue = controller.queue();
    queue.add(Key::Stores);
    let recorder = EventRecorder::new(client.clone(), ROW.name);
    let dispatcher = Arc::new(Dispatcher::new(queue, recorder));
    let monitors = Monitors::new(informers.clone(), graph.clone(), dispatcher.clone());
    let collector = Collector::new(client, runtime.clone(), graph, monitors, dispatcher);
    (controller, collector)
}
