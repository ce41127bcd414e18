//! Description of a controller for the manager: below the controllers, which each make one, and below the list of them.

use crate::context::ControllerContext;
use futures::future::BoxFuture;
use machinery_reconcile::{Controller, Reconciler};
use machinery_runtime::Runtime;

/// Name, account and start of a controller.
#[derive(Debug, Clone, Copy)]
pub struct ControllerDescriptor {
    /// Upstream's name.
    pub name: &'static str,
    /// Upstream's name of its queue, which is the label of `workqueue_*`; several may share one.
    pub queue: &'static str,
    /// The service account it writes as; empty where it writes as the controller manager itself.
    pub service_account: &'static str,
    /// True if it runs unless `--controllers` excludes it.
    pub default: bool,
    /// Builds it: subscribes to its informers at once, works once they are filled, ends when dropped.
    pub start: fn(&ControllerContext) -> BoxFuture<'static, ()>,
}

impl ControllerDescriptor {
    /// Its loop, without caches or handlers yet.
    pub(crate) fn controller<R: Reconciler>(&self, runtime: &Runtime) -> Controller<R> {
        Controller::new(self.name, self.queue, runtime.clone())
    }
}
