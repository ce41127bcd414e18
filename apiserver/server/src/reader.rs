//! Lets authentication, authorization and admission read objects from the registry.

use apiserver_registry::options::{ListOptions, RevisionMatch};
use apiserver_registry::{Registry, RegistryError, Scope, WeakRegistry};
use apiserver_storage::Entry;
use machinery_meta::reader::{ObjectReader, ReadError, ReadFuture, ReadObject};
use machinery_meta::{GroupResource, ObjectKey, Predicate, Revision};
use std::fmt;
use std::sync::Arc;

/// See the module.
pub(crate) struct RegistryReader {
    registry: Registry,
}

impl fmt::Debug for RegistryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryReader").finish_non_exhaustive()
    }
}

impl RegistryReader {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
        }
    }

    async fn matching(
        &self,
        resource: &GroupResource,
        namespace: &str,
        predicate: &Predicate,
    ) -> Result<Vec<Arc<Entry>>, ReadError> {
        let store = self
            .registry
            .preferred_store(&resource.group, &resource.resource)
            .ok_or_else(|| Self::no_such(resource, ""))?;
        let options = ListOptions {
            predicate: predicate.clone(),
            ..ListOptions::default()
        };
        let scope = Scope::of(namespace);
        let mut page = store.list(&scope, &options).await;
        if is_away(&page) {
            let options = ListOptions {
                revision: RevisionMatch::Any,
                ..options
            };
            page = store.list(&scope, &options).await;
        }
        Ok(page.map_err(|error| failed(resource, namespace, &error))?.entries)
    }

    fn no_such(resource: &GroupResource, key: &str) -> ReadError {
        ReadError {
            resource: resource.to_string(),
            key: key.to_owned(),
            cause: "not served".to_owned(),
        }
    }
}

/// Reports whether storage has not answered: then the state in memory decides, as upstream's informers do, so that a known
/// user may still read.
fn is_away<T>(read: &Result<T, RegistryError>) -> bool {
    matches!(read, Err(RegistryError::Unavailable(_)))
}

/// The object's JSON without type meta.
pub(crate) fn read_object(entry: &Entry) -> ReadObject {
    let [_, head, tail] = &entry.record.parts;
    let revision = entry.revision.to_string();
    let mut json = Vec::with_capacity(head.len() + tail.len() + revision.len() + 3);
    json.push(b'{');
    for part in [&head[..], b"\"", revision.as_bytes(), b"\"", &tail[..]] {
        json.extend_from_slice(part);
    }
    ReadObject {
        header: Arc::clone(&entry.record.header),
        revision: entry.revision,
        json,
    }
}

impl ObjectReader for RegistryReader {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, &key.name))?;
            let scope = Scope::of(&key.namespace);
            let mut found = store.get(&scope, &key.name, RevisionMatch::MostRecent).await;
            if is_away(&found) {
                found = store.get(&scope, &key.name, RevisionMatch::Any).await;
            }
            match found {
                Ok(entry) => Ok(Some(read_object(&entry))),
                Err(error) if error.is_not_found() => Ok(None),
                // No object has a name that no path can hold; clients put such names into fields.
                Err(RegistryError::BadRequest(_)) => Ok(None),
                Err(error) => Err(failed(resource, &key.to_string(), &error)),
            }
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let entries = self.matching(resource, namespace, &Predicate::default()).await?;
            Ok(entries.iter().map(|entry| read_object(entry)).collect())
        })
    }

    fn versions<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        predicate: &'a Predicate,
    ) -> ReadFuture<'a, Vec<(ObjectKey, Revision)>> {
        Box::pin(async move {
            let entries = self.matching(resource, namespace, predicate).await?;
            let version = |entry: &Arc<Entry>| (entry.record.header.key.clone(), entry.revision);
            Ok(entries.iter().map(version).collect())
        })
    }

    fn is_any_known<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> ReadFuture<'a, bool> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, ""))?;
            let options = ListOptions {
                revision: RevisionMatch::Any,
                limit: 1,
                ..ListOptions::default()
            };
            let page = store.list(&Scope::of(namespace), &options).await;
            let page = page.map_err(|error| failed(resource, namespace, &error))?;
            Ok(!page.entries.is_empty())
        })
    }
}

/// The same for what the registry holds itself: conversion webhooks, whose services are looked up.
pub(crate) struct WeakReader(WeakRegistry);

impl WeakReader {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(registry.downgrade())
    }

    fn reader(&self, resource: &GroupResource, key: &str) -> Result<RegistryReader, ReadError> {
        let registry = self.0.upgrade().ok_or_else(|| ReadError {
            resource: resource.to_string(),
            key: key.to_owned(),
            cause: "the server ends".to_owned(),
        })?;
        Ok(RegistryReader { registry })
    }
}

impl ObjectReader for WeakReader {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        Box::pin(async move { self.reader(resource, &key.name)?.get(resource, key).await })
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move { self.reader(resource, namespace)?.list(resource, namespace).await })
    }
}

fn failed(resource: &GroupResource, key: &str, error: &apiserver_registry::RegistryError) -> ReadError {
    ReadError {
        resource: resource.to_string(),
        key: key.to_owned(),
        cause: error.to_string(),
    }
}
