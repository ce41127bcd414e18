//! Keeps the status of ResourceQuotas: what is allowed, and what the objects of the namespace use.
//!
//! Watches: quotas (the key), and those resources alone that a quota of the cluster counts, custom ones included
//! ([`monitors`]): of pods, services and claims their measure, of all else their number by namespace. A quota is looked at
//! when it is new or changed, when something that it counts goes or requests less, and every five minutes. New objects are
//! charged by admission, so that a look at a cache that lags does not give away what was just taken.
//! Never: recounts for an update that frees nothing; refuses anything, that is admission's part.

mod monitors;
mod reconcile;
#[cfg(test)]
mod tests;
pub(crate) mod views;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ResourceQuota;
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use monitors::Monitors;
use reconcile::{Key, QuotaReconciler, Waits};
use std::sync::Arc;
use views::QuotaView;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "resourcequota-controller",
    queue: "resourcequota_primary",
    service_account: "resourcequota-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let quotas: Informer<QuotaView> = context.informers.of::<ResourceQuota, _>();
    let controller = ROW.controller(&context.runtime).watches(&quotas, key_of_quota);
    let queue = controller.queue();
    let monitors = Monitors::new(
        context.informers.clone(),
        quotas.clone(),
        queue.clone(),
        context.runtime.clone(),
    );
    queue.add(Key::Resources);
    queue.add(Key::Sweep);
    controller.run(QuotaReconciler {
        client,
        runtime: context.runtime.clone(),
        quotas,
        monitors: Arc::new(monitors),
        queue,
        waits: Waits::default(),
    })
}

/// A quota whose limits have changed. A status that another wrote waits for the next look.
fn key_of_quota(change: &Change<QuotaView>) -> Option<Key> {
    let key: &ObjectKey = change.key();
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.quota.wanted == new.quota.wanted
    {
        return None;
    }
    Some(Key::Quota(key.clone()))
}
