//! Cleanup of a definition that is being deleted: its objects are deleted first.

use crate::engine::admission::{Door, SystemWriter};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::options::{DeleteOptions, ListOptions, UpdateOptions};
use crate::engine::scope::Scope;
use crate::engine::store::{Store, Target, UpdatedObject};
use crate::engine::strategy::ObjectPart;
use crate::shared::conditions::{Condition, set_condition};
use async_trait::async_trait;
use machinery_schema::Tree;

/// Holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Deletes a definition's objects; says whether all are gone.
pub(super) async fn delete_objects(ctx: &RequestContext, store: &Store) -> Result<bool, RegistryError> {
    store
        .delete_collection(
            ctx,
            &Scope::Cluster,
            &DeleteOptions::default(),
            &ListOptions::default(),
            Door::system(SystemWriter::CustomResources),
        )
        .await?;
    let left = store
        .list(
            &Scope::Cluster,
            &ListOptions {
                limit: 1,
                ..ListOptions::default()
            },
        )
        .await?;
    Ok(left.entries.is_empty())
}

/// Progress of the cleanup of a definition, as its condition `Terminating` reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Objects are still to go; without any, the definition itself goes.
    terminating: bool,
    reason: &'static str,
    message: &'static str,
}

pub(super) const IN_PROGRESS: Progress = Progress {
    terminating: true,
    reason: "InstanceDeletionInProgress",
    message: "CustomResource deletion is in progress",
};
pub(super) const COMPLETED: Progress = Progress {
    terminating: false,
    reason: "InstanceDeletionCompleted",
    message: "removed all instances",
};
/// The definition names a built-in resource, whose objects are not the definition's to delete.
pub(super) const OVERLAPPING: Progress = Progress {
    terminating: false,
    reason: "OverlappingBuiltInResource",
    message: "instances overlap with built-in resources in storage",
};
pub(super) const NEVER_ESTABLISHED: Progress = Progress {
    terminating: false,
    reason: "NeverEstablished",
    message: "resource was never established",
};

/// Says how far the cleanup is, and takes the finalizer away when it is done.
struct Advance {
    now: String,
    progress: Progress,
}

#[async_trait]
impl UpdatedObject for Advance {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        let mut object = live.clone();
        let progress = self.progress;
        let said = Condition {
            kind: "Terminating",
            status: if progress.terminating { "True" } else { "False" },
            reason: progress.reason,
            message: progress.message,
        };
        set_condition(&mut object, &self.now, said);
        if !progress.terminating {
            object.with(&["metadata", "finalizers"], |mut list| {
                list.retain(|finalizer| finalizer.as_str() != Some(FINALIZER));
            });
            object.with(&["metadata"], |mut meta| meta.prune_empty("finalizers"));
        }
        Ok(object)
    }
}

/// Writes where the cleanup of a definition stands; one that is gone is fine.
pub(super) async fn advance(
    ctx: &RequestContext,
    definitions: &Store,
    name: &str,
    progress: Progress,
) -> Result<(), RegistryError> {
    let change = Advance {
        now: metadata::format_time(ctx.runtime.now()),
        progress,
    };
    let target = Target {
        scope: &Scope::Cluster,
        name,
        part: ObjectPart::Other("finalize"),
    };
    match definitions
        .update(
            ctx,
            target,
            &change,
            &UpdateOptions::default(),
            Door::system(SystemWriter::CustomResources),
        )
        .await
    {
        Ok(_) | Err(RegistryError::NotFound { .. } | RegistryError::NoSuchResource) => Ok(()),
        Err(error) => Err(error),
    }
}
