//! Deletecollection: list, then delete each, some at a time.

use super::{ListPage, Store};
use crate::admission::Admission;
use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::options::{DeleteOptions, ListOptions};
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
        namespace: &str,
        options: &DeleteOptions,
        select: &ListOptions,
        admission: &dyn Admission,
    ) -> Result<ListPage, RegistryError> {
        let page = self.list(namespace, select).await?;
        let mut deletes: Vec<BoxFuture<'_, Result<(), RegistryError>>> =
            Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            deletes.push(Box::pin(self.delete_one(ctx, entry, options, admission)));
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
        admission: &dyn Admission,
    ) -> Result<(), RegistryError> {
        let key = &entry.record.header.key;
        match self
            .delete(ctx, &key.namespace, &key.name, options, admission)
            .await
        {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
