//! Preconditions of a client on the live object: its revision and its uid.

use super::Store;
use crate::engine::error::{OPTIMISTIC_LOCK_MESSAGE, RegistryError};
use crate::engine::metadata;
use crate::engine::options::{Preconditions, UpdateOptions};
use apiserver_storage::Key;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::Tree;

/// A key as a refused precondition shows it: upstream's dry run is stopped above the storage that has a prefix.
fn shown_key<'a>(key: &'a Key, options: &UpdateOptions) -> &'a str {
    let key = key.as_str();
    match options.dry_run {
        true => key.strip_prefix("/registry").unwrap_or(key),
        false => key,
    }
}

impl Store {
    /// A revision in the candidate must be the live one; none is the live one where the kind allows it.
    pub(super) fn check_revision(
        &self,
        object: &mut Tree,
        old: &Tree,
        name: &str,
    ) -> Result<(), RegistryError> {
        let (wanted, live) = (
            metadata::resource_version(object),
            metadata::resource_version(old),
        );
        match wanted {
            "" | "0" if self.row.strategy.allows_unconditional_update() => {
                object.set_str(&["metadata", "resourceVersion"], live);
                Ok(())
            }
            "" | "0" => {
                let path = FieldPath::new("metadata").child("resourceVersion");
                let problem = FieldError::invalid(&path, 0, "must be specified for an update");
                let resource = self.row.group_resource();
                let kind = GroupKind {
                    group: resource.group,
                    kind: resource.resource,
                };
                Err(RegistryError::Invalid {
                    kind,
                    name: name.to_owned(),
                    errors: vec![problem],
                })
            }
            _ if wanted == live => Ok(()),
            _ if wanted.parse::<u64>().is_err() => Err(RegistryError::Unclassified(format!(
                "strconv.ParseUint: parsing {wanted:?}: invalid syntax"
            ))),
            _ => Err(RegistryError::conflict(
                &self.row.group_resource(),
                name,
                OPTIMISTIC_LOCK_MESSAGE,
            )),
        }
    }

    /// Uid and revision a caller insists on.
    pub(super) fn check_preconditions(
        &self,
        wanted: &Preconditions,
        old: &Tree,
        name: &str,
        (key, options): (&Key, &UpdateOptions),
    ) -> Result<(), RegistryError> {
        let key = shown_key(key, options);
        let refuse = |what: &str, wanted: &str, found: &str| {
            let detail = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            RegistryError::conflict(&self.row.group_resource(), name, detail)
        };
        if let Some(uid) = &wanted.uid
            && uid.0 != metadata::uid(old)
        {
            return Err(refuse("UID", &uid.0, metadata::uid(old)));
        }
        if let Some(version) = &wanted.resource_version
            && version != metadata::resource_version(old)
        {
            return Err(refuse(
                "ResourceVersion",
                version,
                metadata::resource_version(old),
            ));
        }
        Ok(())
    }
}
