//! Carries out the steps of a migration.

use super::definitions;
use super::migrate::{is_transient, page, walk};
use super::plan::{MigrationRef, Step, next, running};
use super::view::MigrationView;
use crate::served_kinds::ServedKinds;
use crate::views::{Condition, created};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use machinery_client::{ApiResource, Client, Edit, Informer};
use machinery_meta::{ObjectKey, Revision};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::time::Duration;

/// Verbs without which objects cannot be rewritten.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// A custom resource may be served a moment after its migration was made.
const APPEARS_WITHIN: SignedDuration = SignedDuration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_secs(10);
const SUCCEEDED: &str = "StorageVersionMigrationSucceeded";
const FAILED: &str = "StorageVersionMigrationFailed";
/// Reason of `Running`.
const RUNNING: &str = "MigrationRunning";

pub(super) struct Migrator {
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    pub(super) kinds: ServedKinds,
    pub(super) migrations: Informer<MigrationView>,
}

impl Reconciler for Migrator {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let own = self.migrations.get(key).filter(|own| !own.header.is_deleting());
            let Some(own) = own else {
                return Ok(Outcome::Done);
            };
            match next(&own, &self.migrations.list()) {
                Step::Nothing => Ok(Outcome::Done),
                Step::Begin => self.begin(&own).await,
                Step::NoteRevision => self.note_revision(&own).await,
                Step::Migrate => self.migrate(&own).await,
                Step::Finish => self.finish(&own).await,
            }
        })
    }
}

/// The resource to migrate, or why there is none.
enum Target {
    Found(ApiResource),
    NotYet,
    Absent(String),
}

impl Migrator {
    async fn begin(&self, own: &MigrationRef) -> Result<Outcome, ReconcileError> {
        let doing = ReconcileError::doing("marking a definition as migrating");
        let definition = definitions::of(&self.client, &own.resource).await;
        if let Some(definition) = definition.map_err(ReconcileError::doing("reading a definition"))? {
            let status = definitions::begun(&definition, own.name(), self.runtime.now());
            definitions::write(&self.client, &definition, status)
                .await
                .map_err(doing)?;
        }
        self.write(own, &[("Running", true, RUNNING, running(0, 0, None))], None)
            .await
    }

    async fn target(&self, own: &MigrationRef) -> Result<Target, ReconcileError> {
        let kinds = self.kinds.all().await;
        let kinds = kinds.map_err(ReconcileError::doing("discovering what is served"))?;
        let wanted = &own.resource;
        let found = kinds.iter().find(|kind| {
            kind.preferred && kind.resource.group == wanted.group && kind.resource.plural == wanted.resource
        });
        let Some(found) = found else {
            let age = self.runtime.now().duration_since(created(&own.header));
            return Ok(match age < APPEARS_WITHIN {
                true => Target::NotYet,
                false => Target::Absent("resource does not exist in discovery".to_owned()),
            });
        };
        if found.has_verbs(&VERBS) {
            return Ok(Target::Found(found.resource.clone()));
        }
        let (group, version) = (&found.resource.group, &found.resource.version);
        Ok(Target::Absent(format!(
            "resource \"{group}/{version}, Resource={}\" does not support discovery operations: [update patch list]",
            found.resource.plural
        )))
    }

    async fn note_revision(&self, own: &MigrationRef) -> Result<Outcome, ReconcileError> {
        let resource = match self.target(own).await? {
            Target::Found(resource) => resource,
            Target::NotYet => return Ok(Outcome::RequeueAfter(ASK_AGAIN)),
            Target::Absent(why) => return self.write(own, &[("Failed", true, FAILED, why)], None).await,
        };
        let page = page(&self.client, &resource, (1, "")).await;
        let page = page.map_err(ReconcileError::doing("reading the newest revision"))?;
        self.write(own, &[], Some(&page.metadata.resource_version)).await
    }

    async fn migrate(&self, own: &MigrationRef) -> Result<Outcome, ReconcileError> {
        let resource = match self.target(own).await? {
            Target::Found(resource) => resource,
            Target::NotYet => return Ok(Outcome::RequeueAfter(ASK_AGAIN)),
            Target::Absent(why) => return self.write(own, &[("Failed", true, FAILED, why)], None).await,
        };
        let newest: Revision = own.noted.parse().unwrap_or(Revision::ZERO);
        let (counts, error) = walk(&self.client, &resource, newest).await;
        let message = |error: Option<&str>| running(counts.left, counts.all, error);
        match error {
            None => {
                let succeeded = ("Succeeded", true, SUCCEEDED, "Migration completed".to_owned());
                self.write(own, &[("Running", true, RUNNING, message(None)), succeeded], None)
                    .await
            }
            Some(error) if is_transient(&error) => {
                let running = ("Running", true, RUNNING, message(Some(&error.to_string())));
                self.write(own, &[running], None).await?;
                Err(ReconcileError::doing("rewriting objects")(error))
            }
            Some(error) => {
                let why = format!(
                    "{}/{} not yet migrated. migration encountered unhandled error: {error}",
                    counts.left, counts.all
                );
                let failed = ("Failed", true, FAILED, why);
                self.write(own, &[("Running", true, RUNNING, message(None)), failed], None)
                    .await
            }
        }
    }

    async fn finish(&self, own: &MigrationRef) -> Result<Outcome, ReconcileError> {
        let definition = definitions::of(&self.client, &own.resource).await;
        if let Some(definition) = definition.map_err(ReconcileError::doing("reading a definition"))? {
            let status = definitions::finished(&definition, own.is("Succeeded"), self.runtime.now());
            let written = definitions::write(&self.client, &definition, status).await;
            written.map_err(ReconcileError::doing("marking a definition as migrated"))?;
        }
        let ended = (
            "Running",
            false,
            "MigrationCompleted",
            "Migration completed".to_owned(),
        );
        self.write(own, &[ended], None).await
    }

    /// Writes conditions, and the revision where there is one.
    async fn write(
        &self,
        own: &MigrationRef,
        conditions: &[(&str, bool, &str, String)],
        revision: Option<&str>,
    ) -> Result<Outcome, ReconcileError> {
        let body: Value = own.decode()?;
        let mut status = body["status"].as_object().cloned().unwrap_or_default();
        let now = self.runtime.now();
        let mut all = own.conditions.clone();
        for (kind, holds, reason, message) in conditions {
            let holds = if *holds { "True" } else { "False" };
            let mut new = Condition::new(kind, holds, reason, message, now);
            match all.iter_mut().find(|known| known.kind == *kind) {
                Some(known) => {
                    if known.status == new.status {
                        new.last_transition_time = known.last_transition_time.clone();
                    }
                    *known = new;
                }
                None => all.push(new),
            }
        }
        if all == own.conditions && revision.is_none() {
            return Ok(Outcome::Done);
        }
        status.insert("conditions".to_owned(), json!(all));
        if let Some(revision) = revision {
            status.insert("resourceVersion".to_owned(), json!(revision));
        }
        let resource = ApiResource::of::<StorageVersionMigration>();
        let mut edit = Edit::of(&resource, &own.json())?;
        edit.set("status", &status)?;
        match self
            .client
            .update(&resource, own.key(), "status", edit.body())
            .await
        {
            Err(error) if !error.is_not_found() => Err(ReconcileError::doing("writing status")(error)),
            _ => Ok(Outcome::Done),
        }
    }
}
