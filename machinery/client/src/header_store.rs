//! Stores as readers of headers see them, whatever their projection is.

use crate::informer::{Informer, Subscription};
use crate::projection::Projection;
use futures::future::BoxFuture;
use machinery_meta::{ObjectHeader, ObjectKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The headers of a change, for readers that do not know the projection.
#[derive(Debug)]
pub struct HeaderChange<'a> {
    /// The header before.
    pub old: Option<&'a Arc<ObjectHeader>>,
    /// The header now.
    pub new: Option<&'a Arc<ObjectHeader>>,
    /// An API extension says so, not the server.
    pub of_extension: bool,
    /// The object is not gone; the store no longer learns what becomes of it.
    pub forgotten: bool,
}

/// Facts about the changes that a store delivers now.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) of_extension: AtomicBool,
    pub(crate) forgets: AtomicBool,
}

/// A store of any projection, read by its headers (the garbage collector reads all of them this way).
pub trait HeaderStore: Send + Sync {
    /// The header under a key.
    fn header(&self, key: &ObjectKey) -> Option<Arc<ObjectHeader>>;
    /// Reports whether the first list is in the store.
    fn has_synced(&self) -> bool;
    /// Waits until the first list is in the store.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// The same as [`Informer::on_change`], with headers.
    fn on_header_change(&self, handler: Box<dyn Fn(&HeaderChange<'_>) + Send + Sync>) -> Subscription;
    /// The same as [`Informer::on_list`].
    fn on_list(&self, handler: Box<dyn Fn() + Send + Sync>) -> Subscription;
}

impl<P: Projection> HeaderStore for Informer<P> {
    fn header(&self, key: &ObjectKey) -> Option<Arc<ObjectHeader>> {
        self.get(key).map(|object| object.header.clone())
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::synced(self))
    }

    fn on_header_change(&self, handler: Box<dyn Fn(&HeaderChange<'_>) + Send + Sync>) -> Subscription {
        let origin = self.origin();
        self.on_change(move |change| {
            handler(&HeaderChange {
                old: change.old.as_ref().map(|object| &object.header),
                new: change.new.as_ref().map(|object| &object.header),
                of_extension: origin.of_extension.load(Ordering::Acquire),
                forgotten: origin.forgets.load(Ordering::Acquire),
            });
        })
    }

    fn on_list(&self, handler: Box<dyn Fn() + Send + Sync>) -> Subscription {
        Self::on_list(self, handler)
    }
}
