//! Objects that are stored and cannot be read: no key opens them, or they are no objects of their kind any more.
//!
//! A list that holds some names them. Each can be deleted, with all that its deletion would otherwise respect left aside,
//! and nothing else can be deleted this way.

use super::{Committed, Store, Target, UPDATE_ATTEMPTS};
use crate::engine::admission::{Door, Operation};
use crate::engine::context::RequestContext;
use crate::engine::error::{Cause, OPTIMISTIC_LOCK_MESSAGE, RegistryError};
use crate::engine::scope::Scope;
use crate::engine::strategy::ObjectPart;
use apiserver_storage::{Key, ReadAt, StorageError, Write};
use machinery_meta::GroupResource;

/// The state of a key in storage.
enum Found {
    Nothing,
    Readable,
    Unreadable,
}

impl Store {
    /// Deletes an object that cannot be read. Preconditions, finalizers, admission plugins and addresses that the object
    /// may have are left aside: they are unknown.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] where the object can be read.
    pub async fn delete_unreadable(
        &self,
        ctx: &RequestContext,
        (scope, name): (&Scope, &str),
        dry_run: bool,
        door: Door<'_>,
    ) -> Result<(), RegistryError> {
        let (key, resource) = (self.key(scope, name)?, self.row.group_resource());
        let part = ObjectPart::Main;
        let attributes = self.attributes(Operation::Delete, Target { scope, name, part }, dry_run);
        for _ in 0..UPDATE_ATTEMPTS {
            ctx.in_time()?;
            // Before the look: a delete of this revision is then of what was looked at.
            let stored = self.storage().stored_revision(&key).await;
            let stored = stored.map_err(|error| self.storage_error(&error))?;
            match (stored, self.found(&key).await?) {
                (None, _) | (_, Found::Nothing) => return Err(RegistryError::not_found(&resource, name)),
                (_, Found::Readable) => return Err(readable(&resource, name, &key)),
                (Some(_), Found::Unreadable) if dry_run => return Ok(()),
                (Some(revision), Found::Unreadable) => {
                    tracing::warn!(%key, user = %ctx.user.name, "deleting an object that cannot be read");
                    let admitted = door.delete_unreadable(attributes.clone())?;
                    let write = Write::delete(key.clone(), revision);
                    if let Committed::Done(..) = self.commit(ctx, &admitted, write, Vec::new()).await? {
                        return Ok(());
                    }
                }
            }
        }
        Err(RegistryError::conflict(&resource, name, OPTIMISTIC_LOCK_MESSAGE))
    }

    async fn found(&self, key: &Key) -> Result<Found, RegistryError> {
        let found = match self.storage().get(key, ReadAt::Latest).await {
            Ok(found) => found,
            Err(error) if error.is_unreadable() => return Ok(Found::Unreadable),
            Err(error) => return Err(self.storage_error(&error)),
        };
        let Some(entry) = found.entry else {
            return Ok(Found::Nothing);
        };
        // As it is stored: whether a webhook converts it is another question.
        let (store, bytes) = (self.clone(), entry.record.len());
        let read = move || store.decode(&store.migrate_entry(entry)).map(drop);
        match self.turns().run(bytes, read).await {
            Ok(()) => Ok(Found::Readable),
            Err(error) => {
                tracing::warn!(%key, %error, "a stored object is unreadable");
                Ok(Found::Unreadable)
            }
        }
    }
}

fn readable(resource: &GroupResource, name: &str, key: &Key) -> RegistryError {
    RegistryError::conflict(
        resource,
        name,
        format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             unsafe deletion is not allowed because the object is decodable from storage"
        ),
    )
}

const UNTRANSFORMABLE: &str = "data from the storage is not transformable";
const UNDECODABLE: &str = "object not decodable";

/// Upstream's words for an object whose key is missing or wrong.
pub(super) fn untransformable(key: &str, cause: &str) -> String {
    corrupt(key, UNTRANSFORMABLE, cause)
}

/// Upstream's words for an object whose bytes are none.
pub(super) fn undecodable(key: &str, cause: &str) -> String {
    corrupt(key, UNDECODABLE, cause)
}

/// The answer to a change of an object that cannot be read; `None` for other errors (upstream's `GuaranteedUpdate`, which
/// names no key, and knows the second for no error of storage).
pub(super) fn change_error(error: &StorageError) -> Option<RegistryError> {
    let words = |what: &str, cause: &str| format!("{what} revision=0: {cause}");
    match error {
        StorageError::Sealed { cause, .. } => Some(RegistryError::Unreadable(words(UNTRANSFORMABLE, cause))),
        StorageError::Unreadable { cause, .. } => {
            Some(RegistryError::Unclassified(words(UNDECODABLE, cause)))
        }
        _ => None,
    }
}

fn corrupt(key: &str, what: &str, cause: &str) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, \
         AdditionalErrorMsg: {what} revision=0: {cause}"
    )
}

/// The answer to a list of which some objects cannot be read.
pub(super) fn list_error(resource: &GroupResource, found: &[StorageError], is_cut: bool) -> RegistryError {
    let mut causes: Vec<Cause> = found.iter().map(cause).collect();
    let first = causes.first().map_or("", |cause| cause.message.as_str());
    let mut message = format!("failed to read one or more {resource} from the storage: {first}");
    if causes.len() > 1 {
        message.push_str(&format!(" (and {} more)", causes.len() - 1));
    }
    tracing::error!(why = %message, "failed to read stored objects");
    if is_cut {
        causes.push(Cause {
            reason: "FieldValueTooMany".to_owned(),
            message: "too many errors, the list is truncated".to_owned(),
            field: String::new(),
        });
    }
    RegistryError::StorageRead {
        resource: resource.clone(),
        message,
        causes,
    }
}

fn cause(error: &StorageError) -> Cause {
    let (key, message) = match error {
        StorageError::Sealed { key, cause } => (key.to_string(), untransformable(key.as_str(), cause)),
        StorageError::Unreadable { key, cause } => (key.clone(), undecodable(key, cause)),
        other => (String::new(), other.to_string()),
    };
    Cause {
        reason: "UnexpectedServerResponse".to_owned(),
        message,
        field: key,
    }
}
