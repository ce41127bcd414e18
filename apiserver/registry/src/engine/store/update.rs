//! Update and patch: read, change, prepare, validate, compare and write; again when the revision moved.

use super::updated_object::UpdatedObject;
use super::{Committed, Store, Written, claim};
use crate::engine::admission::{Admitted, Door, Operation};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::{LARGE_BODY_BYTES, RequestContext};
use crate::engine::error::{OPTIMISTIC_LOCK_MESSAGE, RegistryError};
use crate::engine::metadata::owners::{Moment, remove_repeated_owners};
use crate::engine::options::{CreateOptions, UpdateOptions};
use crate::engine::scope::Scope;
use crate::engine::strategy::ObjectPart;
use crate::engine::{managed_fields, metadata};
use apiserver_storage::{Entry, Expect, ReadAt, Write};
use machinery_schema::Tree;
use std::sync::Arc;

/// An unconditional change meets at most this many others before the answer asks the client to retry: more than five
/// writers of one object at the same moment are a client's mistake.
pub const UPDATE_ATTEMPTS: usize = 16;

/// The object and part that an update addresses.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub scope: &'a Scope,
    pub name: &'a str,
    pub part: ObjectPart,
}

/// Request of all attempts of an update.
#[derive(Clone, Copy)]
struct Update<'a> {
    target: Target<'a>,
    change: &'a dyn UpdatedObject,
    options: &'a UpdateOptions,
    door: Door<'a>,
}

impl ObjectPart {
    /// The subresource's name in admission and audit.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Other(name) => name,
        }
    }
}

impl Store {
    /// Changes an object; creates it where it is missing and the kind (or the options) allow that.
    pub async fn update(
        &self,
        ctx: &RequestContext,
        target: Target<'_>,
        change: &dyn UpdatedObject,
        options: &UpdateOptions,
        door: Door<'_>,
    ) -> Result<Written, RegistryError> {
        let key = self.key(target.scope, target.name)?;
        let update = Update {
            target,
            change,
            options,
            door,
        };
        for _ in 0..UPDATE_ATTEMPTS {
            ctx.in_time()?;
            let Some(live) = self.read_live(&key).await? else {
                let nothing = Tree::new(&self.row.schema, self.row.ty);
                let preconditions = change.preconditions();
                self.check_preconditions(&preconditions, &nothing, target.name, (&key, options))?;
                return self.create_on_update(ctx, target, change, options, door).await;
            };
            if let Some(written) = self.update_once(ctx, update, &live).await? {
                return Ok(written);
            }
        }
        Err(RegistryError::conflict(
            &self.row.group_resource(),
            target.name,
            OPTIMISTIC_LOCK_MESSAGE,
        ))
    }

    /// One attempt; `None` when another wrote in between.
    async fn update_once(
        &self,
        ctx: &RequestContext,
        update: Update<'_>,
        live: &Arc<Entry>,
    ) -> Result<Option<Written>, RegistryError> {
        ctx.heavy_from(live.record.len(), LARGE_BODY_BYTES).await?;
        let old = self.decode(live)?;
        let preconditions = update.change.preconditions();
        let place = (&live.key, update.options);
        self.check_preconditions(&preconditions, &old, update.target.name, place)?;
        let candidate = self.candidate(ctx, update, &old).await?;
        let (object, admitted) = self.admit_candidate(ctx, update, candidate, &old).await?;
        // Upstream's strategies of subresources warn of nothing.
        if update.target.part == ObjectPart::Main || self.row.custom {
            for warning in self.row.strategy.warnings(object.root(), Some(old.root())) {
                ctx.warnings.add(warning);
            }
        }
        if self.is_released(&object, &old) {
            let dry_run = update.options.dry_run;
            return self.finish_deletion(ctx, &admitted, live, object, dry_run).await;
        }
        // What is stored with an old key, or in an old form, is written again, though nothing of the object changes.
        if object == old && !self.is_behind(live).await? {
            return Ok(Some(Written::Stored {
                entry: Arc::clone(live),
                created: false,
            }));
        }
        let states = (object, &old);
        self.write_changed(ctx, update, &admitted, live, states).await
    }

    /// The object that a change makes of the live one, with its field owners.
    async fn candidate(
        &self,
        ctx: &RequestContext,
        update: Update<'_>,
        old: &Tree,
    ) -> Result<Tree, RegistryError> {
        let mut candidate = update.change.apply(ctx, Some(old)).await?;
        if update.change.is_sent_whole() {
            remove_repeated_owners(ctx, &mut candidate, Moment::Sent);
        }
        let manager = &update.options.field_manager;
        let changed = (update.target, update.change);
        let tracked = self.track_changed(ctx, update.door, manager, changed, (old, candidate));
        let mut candidate = tracked.await?;
        let namespace = update.target.scope.namespace();
        metadata::validation::match_namespace(&mut candidate, &self.row, namespace)?;
        Ok(candidate)
    }

    /// Admission and validation: the object to be stored, and the permit for it.
    async fn admit_candidate(
        &self,
        ctx: &RequestContext,
        update: Update<'_>,
        mut candidate: Tree,
        old: &Tree,
    ) -> Result<(Tree, Admitted), RegistryError> {
        let Update { target, change, .. } = update;
        let old_view = change.view(old)?;
        let admitted_old = old_view.as_ref().unwrap_or(old);
        let mut attributes = self.attributes(Operation::Update, target, update.options.dry_run);
        attributes.options = update.options.into();
        if let Some(kind) = change.kind() {
            attributes.kind = kind;
        }
        let mutated = self.mutate(ctx, update.door, attributes, &mut candidate, Some(admitted_old));
        let mutated = mutated.await?;
        remove_repeated_owners(ctx, &mut candidate, Moment::Mutated);
        let mut object = change.stored(candidate, old)?;
        self.check_revision(&mut object, old, target.name)?;
        self.prepare_changed(ctx, target.part, &mut object, old);
        managed_fields::keep_times(&mut object, old);
        self.validate_updated(ctx, target.part, &object, old).await?;
        let view = change.view(&object)?;
        let validated = mutated.validate(ctx, view.as_ref().unwrap_or(&object), Some(admitted_old));
        let admitted = validated.await?;
        Ok((object, admitted))
    }

    /// Stores a changed object, or shows what a dry run would store; `None` when another wrote in between.
    async fn write_changed(
        &self,
        ctx: &RequestContext,
        update: Update<'_>,
        admitted: &Admitted,
        live: &Arc<Entry>,
        (mut object, old): (Tree, &Tree),
    ) -> Result<Option<Written>, RegistryError> {
        let with = self
            .allocate(ctx, AllocationChange::Update { old: old.root() }, &mut object)
            .await?;
        let has_field_owners = update.change.has_field_owners();
        if !has_field_owners {
            self.make_release_fit(ctx, live, (&mut object, old), &with)?;
        }
        if update.options.dry_run {
            let write = self.put(live.key.clone(), self.encode(&object)?, Expect::At(live.revision));
            self.check_room(ctx, admitted, write, with).await?;
            return Ok(Some(Written::Shown {
                object: self.as_read(object)?,
                created: false,
            }));
        }
        let committed = match self
            .commit_changed(ctx, admitted, live, &object, with.clone())
            .await
        {
            // As upstream: the record may go where it makes the object too large, but for an apply.
            Err(RegistryError::TooLarge(_)) if !has_field_owners => {
                managed_fields::forget(&mut object);
                self.commit_changed(ctx, admitted, live, &object, with).await?
            }
            committed => committed?,
        };
        Ok(committed.entry().map(|entry| Written::Stored {
            entry,
            created: false,
        }))
    }

    /// Reports whether a write of the object as it is would change what is stored: its key, its version, or its content by
    /// the schema of now. Storage has the form of now where the content is the same (see [`Store::migrate_entry`]).
    async fn is_behind(&self, live: &Entry) -> Result<bool, RegistryError> {
        if self.storage().is_stale(live) {
            return Ok(true);
        }
        let stored = &self.row.stored;
        let fingerprint = match &stored.webhook {
            Some(webhook) => webhook.storage.fingerprint,
            None => stored.fingerprint,
        };
        let found = self.storage().get(&live.key, ReadAt::Latest).await;
        let found = found.map_err(|error| self.storage_error(&error))?.entry;
        // Another's write is a conflict that the next attempt sees.
        Ok(found.is_some_and(|own| own.revision == live.revision && own.record.fingerprint != fingerprint))
    }

    /// A deleted object loses its finalizers however full the store is: where its `managedFields` have no room, they go, as
    /// they do where they make their object too large. Room of the system's would be any user's, some of it with each
    /// of an object's finalizers.
    fn make_release_fit(
        &self,
        ctx: &RequestContext,
        live: &Entry,
        (object, old): (&mut Tree, &Tree),
        with: &[Write],
    ) -> Result<(), RegistryError> {
        let is_deleted = metadata::time(old, "deletionTimestamp").is_some();
        let [left, before] = [&*object, old].map(|object| metadata::finalizers(object).len());
        if !is_deleted || left >= before {
            return Ok(());
        }
        let mut group = with.to_vec();
        group.push(self.put(live.key.clone(), self.encode(object)?, Expect::At(live.revision)));
        if self.storage().has_room_for(claim(ctx), &group).is_err() {
            managed_fields::forget(object);
        }
        Ok(())
    }

    async fn commit_changed(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        live: &Entry,
        object: &Tree,
        with: Vec<Write>,
    ) -> Result<Committed, RegistryError> {
        let write = self.put(live.key.clone(), self.encode(object)?, Expect::At(live.revision));
        self.commit(ctx, admitted, write, with).await
    }

    pub(super) fn prepare_changed(
        &self,
        ctx: &RequestContext,
        part: ObjectPart,
        object: &mut Tree,
        old: &Tree,
    ) {
        let strategy = &self.row.strategy;
        metadata::carry_over(object, old);
        match part {
            ObjectPart::Main if self.row.has_status() => metadata::restore_member(object, old, "status"),
            ObjectPart::Status => self.keep_only_status(object, old),
            _ => {}
        }
        strategy.prepare_for_update(ctx, part, object, old);
        self.drop_disabled_fields(object, Some(old));
        if strategy.counts_generation() && part != ObjectPart::Status {
            // Binding a pod is no change of what it requests.
            let grown = part != ObjectPart::Other("binding") && strategy.spec_changed(object, old);
            metadata::set_generation(object, metadata::generation(old) + i64::from(grown));
        }
    }

    /// A status update changes metadata and status; everything else stays as it is.
    fn keep_only_status(&self, object: &mut Tree, old: &Tree) {
        let members: Vec<String> = old
            .root()
            .entries()
            .chain(object.root().entries())
            .map(|(name, _)| name.to_owned())
            .filter(|name| name != "metadata" && name != "status")
            .collect();
        for member in members {
            metadata::restore_member(object, old, &member);
        }
    }

    async fn validate_updated(
        &self,
        ctx: &RequestContext,
        part: ObjectPart,
        object: &Tree,
        old: &Tree,
    ) -> Result<(), RegistryError> {
        let bytes = object.arena_bytes().max(old.arena_bytes());
        self.turn_to_validate(ctx, bytes).await?;
        self.validate_changed(ctx, part, object, old)
    }

    fn validate_changed(
        &self,
        ctx: &RequestContext,
        part: ObjectPart,
        object: &Tree,
        old: &Tree,
    ) -> Result<(), RegistryError> {
        let mut problems = metadata::validation::validate_changed(object, old, &self.row);
        problems.extend(
            self.row
                .strategy
                .validate_update(ctx, part, object.root(), old.root()),
        );
        self.refuse_invalid(ctx, metadata::name(object), problems)
    }

    /// The last finalizer of a deleted object went away with this update.
    fn is_released(&self, object: &Tree, old: &Tree) -> bool {
        let grace = old
            .at(&["metadata", "deletionGracePeriodSeconds"])
            .and_then(machinery_schema::Ref::as_i64);
        // A namespace has no grace period at all.
        grace.unwrap_or(0) == 0
            && old
                .at(&["metadata", "deletionTimestamp"])
                .is_some_and(|t| !t.is_null())
            && metadata::finalizers(object).is_empty()
            && !self.row.strategy.keeps_after_finalizers(object.root())
    }

    async fn finish_deletion(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        live: &Arc<Entry>,
        mut object: Tree,
        dry_run: bool,
    ) -> Result<Option<Written>, RegistryError> {
        if !dry_run {
            let with = self.allocate(ctx, AllocationChange::Delete, &mut object).await?;
            let write = Write::delete(live.key.clone(), live.revision);
            let committed = self.commit(ctx, admitted, write, with).await?;
            // That it has gone meanwhile is what was wanted.
            if !matches!(committed, Committed::Done(..)) && !self.is_gone(live).await? {
                return Ok(None);
            }
        }
        Ok(Some(Written::Shown {
            object,
            created: false,
        }))
    }

    /// Reports whether nothing is left of the object, or another of its name is there.
    async fn is_gone(&self, was: &Entry) -> Result<bool, RegistryError> {
        let live = self.read_entry(&was.key).await?;
        Ok(live.is_none_or(|live| !live.is_same_object(was)))
    }

    async fn create_on_update(
        &self,
        ctx: &RequestContext,
        target: Target<'_>,
        change: &dyn UpdatedObject,
        options: &UpdateOptions,
        door: Door<'_>,
    ) -> Result<Written, RegistryError> {
        let missing = || RegistryError::not_found(&self.row.group_resource(), target.name);
        let allowed = options.create_missing || self.row.strategy.allows_create_on_update();
        if target.part != ObjectPart::Main || !allowed {
            return Err(missing());
        }
        let mut object = change.apply(ctx, None).await?;
        object.remove(&["metadata", "resourceVersion"]);
        let options = CreateOptions {
            dry_run: options.dry_run,
            field_manager: options.field_manager.clone(),
            field_validation: options.field_validation,
            addressed: true,
        };
        if change.has_field_owners() {
            return self
                .create_tracked(ctx, target.scope, object, &options, door)
                .await;
        }
        self.create(ctx, target.scope, object, &options, door).await
    }
}
