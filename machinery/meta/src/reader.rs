//! Reader of objects for authorization and admission, which do not know the registry.

use crate::header::ObjectHeader;
use crate::key::{ObjectKey, Revision};
use crate::names::GroupResource;
use crate::predicate::Predicate;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An object as the store holds it: its header and its JSON text without type meta.
#[derive(Debug, Clone)]
pub struct ReadObject {
    pub header: Arc<ObjectHeader>,
    /// The version that was read.
    pub revision: Revision,
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

    /// Returns the keys of the objects of a namespace (empty: of all) that match, and the version that each is in now; a store need not copy any of them.
    fn versions<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        predicate: &'a Predicate,
    ) -> ReadFuture<'a, Vec<(ObjectKey, Revision)>> {
        Box::pin(async move {
            let objects = self.list(resource, namespace).await?;
            let matching = objects.iter().filter(|object| predicate.matches(&object.header));
            let version = |object: &ReadObject| (object.header.key.clone(), object.revision);
            Ok(matching.map(version).collect())
        })
    }

    /// Reports whether a namespace has an object of a resource, by what is in memory: it may lag behind a store that others
    /// write as well, as upstream's informers do, and sends no request.
    fn is_any_known<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> ReadFuture<'a, bool> {
        Box::pin(async move { Ok(!self.list(resource, namespace).await?.is_empty()) })
    }
}
