//! Deletes what nobody owns any more, in whichever order its owners asked for: background, foreground, orphan.
//!
//! Watches: every resource that discovery says can be listed, watched and deleted, custom ones included, by headers
//! only; a change of CRDs or APIServices asks discovery again. The [`graph`] holds who owns whom. What looks ownerless
//! there is asked for at the live API before anything is deleted, and every delete carries the uid and revision it was
//! decided on. Cycles under foreground deletion are opened by unblocking one reference.
//! Never: polls discovery, decodes more than metadata.

mod graph;
mod monitors;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::all::ControllerRow;
use crate::context::ControllerContext;
use futures::future::BoxFuture;
use graph::Graph;
use machinery_reconcile::Controller;
use monitors::Monitors;
use reconcile::{Collector, Key};
use std::sync::Arc;

pub(crate) const ROW: ControllerRow = ControllerRow {
    name: "garbage-collector-controller",
    service_account: "generic-garbage-collector",
    default: true,
    start,
};

/// `--concurrent-gc-syncs`.
const WORKERS: usize = 20;

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let controller = Controller::<Collector>::new(ROW.name, context.runtime.clone()).workers(WORKERS);
    let graph = Arc::new(Graph::default());
    let monitors = Arc::new(Monitors::new(
        context.informers.clone(),
        graph.clone(),
        controller.queue(),
    ));
    let controller = Monitors::watch_kinds(&context.informers, controller);
    controller.queue().add(Key::Discovery);
    let client = context.client(ROW.service_account);
    controller.run(Collector {
        client,
        runtime: context.runtime.clone(),
        graph,
        monitors,
    })
}
