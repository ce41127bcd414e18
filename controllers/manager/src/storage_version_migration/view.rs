//! Projection of a StorageVersionMigration.

use crate::views::{Condition, find};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// A StorageVersionMigration.
#[derive(Debug)]
pub(crate) struct MigrationView {
    pub(super) resource: GroupResource,
    pub(super) conditions: Vec<Condition>,
    /// `status.resourceVersion`.
    pub(super) noted: String,
}

/// The resource whose objects are rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct GroupResource {
    pub(super) group: String,
    pub(super) resource: String,
}

impl MigrationView {
    pub(super) fn is(&self, kind: &str) -> bool {
        find(&self.conditions, kind).is_some_and(Condition::is_true)
    }

    /// Reports whether it has succeeded or failed.
    pub(super) fn is_over(&self) -> bool {
        self.is("Succeeded") || self.is("Failed")
    }
}

impl Projection for MigrationView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let migration: Migration = machinery_client::json::from_slice(json)?;
        Ok(Self {
            resource: migration.spec.resource,
            conditions: migration.status.conditions,
            noted: migration.status.resource_version,
        })
    }
}

#[derive(Deserialize)]
struct Migration {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    resource: GroupResource,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    resource_version: String,
}
