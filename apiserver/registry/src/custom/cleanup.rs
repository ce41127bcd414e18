//! What remains of a definition that is being deleted: its objects go first.

use super::names::set_condition;
use crate::admission::AdmitAll;
use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::metadata;
use crate::options::{DeleteOptions, ListOptions, UpdateOptions};
use crate::store::{Store, Target, UpdatedObject};
use crate::strategy::Part;
use async_trait::async_trait;
use machinery_schema::Tree;

/// Holds a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Deletes a definition's objects; says whether all are gone.
pub(super) async fn delete_objects(ctx: &RequestContext, store: &Store) -> Result<bool, RegistryError> {
    store
        .delete_collection(
            ctx,
            "",
            &DeleteOptions::default(),
            &ListOptions::default(),
            &AdmitAll,
        )
        .await?;
    let left = store
        .list(
            "",
            &ListOptions {
                limit: 1,
                ..ListOptions::default()
            },
        )
        .await?;
    Ok(left.entries.is_empty())
}

/// Takes the finalizer away, with which the definition goes.
struct Release {
    now: String,
}

#[async_trait]
impl UpdatedObject for Release {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        let mut object = live.clone();
        let (reason, message) = ("InstanceDeletionCompleted", "removed all instances");
        set_condition(&mut object, &self.now, ("Terminating", "False"), reason, message);
        object.with(&["metadata", "finalizers"], |mut list| {
            list.retain(|finalizer| finalizer.as_str() != Some(FINALIZER));
        });
        object.with(&["metadata"], |mut meta| meta.prune_empty("finalizers"));
        Ok(object)
    }
}

/// Lets the definition go.
pub(super) async fn release(
    ctx: &RequestContext,
    definitions: &Store,
    name: &str,
) -> Result<(), RegistryError> {
    let change = Release {
        now: metadata::format_time(ctx.runtime.now()),
    };
    let target = Target {
        namespace: "",
        name,
        part: Part::Other("finalize"),
    };
    match definitions
        .update(ctx, target, &change, &UpdateOptions::default(), &AdmitAll)
        .await
    {
        Ok(_) | Err(RegistryError::NotFound { .. } | RegistryError::NoSuchResource) => Ok(()),
        Err(error) => Err(error),
    }
}
