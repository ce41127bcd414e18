//! How authorization and admission read objects without knowing the registry.

use crate::header::ObjectHeader;
use crate::key::ObjectKey;
use crate::names::GroupResource;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An object as the store holds it: its header and its JSON text without type meta.
#[derive(Debug, Clone)]
pub struct ReadObject {
    pub header: Arc<ObjectHeader>,
    pub json: Vec<u8>,
}

/// The object could not be read for a reason other than absence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("reading {resource} {key}: {cause}")]
pub struct ReadError {
    pub resource: String,
    pub key: String,
    pub cause: String,
}

/// A boxed future, so that the trait stays usable behind `dyn`.
pub type ReadFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReadError>> + Send + 'a>>;

/// Reads current objects; the server fills it from the registry.
pub trait ObjectReader: Send + Sync {
    /// The object, or `None` when there is none.
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>>;

    /// All objects of a resource, in one namespace or (empty) in all.
    fn list<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str)
    -> ReadFuture<'a, Vec<ReadObject>>;

    /// A number that grows with every change of the resource; equal numbers mean that nothing changed.
    fn generation(&self, resource: &GroupResource) -> u64;
}
