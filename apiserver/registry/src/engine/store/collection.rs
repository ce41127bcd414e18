//! Deletecollection: list, then delete each, some at a time.

use super::{ListPage, Store};
use crate::engine::admission::Door;
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::options::{DeleteOptions, ListOptions};
use crate::engine::scope::Scope;
use apiserver_storage::Entry;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};

/// This many deletes are in flight; they share the log's commits.
const DELETE_WORKERS: usize = 64;

impl Store {
    /// Deletes what the options select; answers with what was there.
    pub async fn delete_collection(
        &self,
        ctx: &RequestContext,
        scope: &Scope,
        options: &DeleteOptions,
        select: &ListOptions,
        door: Door<'_>,
    ) -> Result<ListPage, RegistryError> {
        let page = self.list(scope, select).await?;
        let options = &DeleteOptions {
            of_collection: true,
            ..options.clone()
        };
        let mut deletes: Vec<BoxFuture<'_, Result<(), RegistryError>>> =
            Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            deletes.push(Box::pin(self.delete_one(ctx, entry, options, door)));
        }
        stream::iter(deletes)
            .buffer_unordered(DELETE_WORKERS)
            .try_collect::<()>()
            .await?;
        Ok(page)
    }

    /// Deletes what a list found; that it has gone meanwhile is fine.
    async fn delete_one(
        &self,
        ctx: &RequestContext,
        entry: &Entry,
        options: &DeleteOptions,
        door: Door<'_>,
    ) -> Result<(), RegistryError> {
        let key = &entry.record.header.key;
        let scope = Scope::of(&key.namespace);
        match self.delete(ctx, &scope, &key.name, options, door).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
