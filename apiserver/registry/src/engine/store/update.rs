//! Update and patch: read, change, prepare, validate, compare and write; again when the revision moved.

use super::{Committed, Store, Written, claim};
use crate::engine::admission::{Admitted, Door, Operation};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::{LARGE_BODY_BYTES, RequestContext};
use crate::engine::error::{OPTIMISTIC_LOCK_MESSAGE, RegistryError};
use crate::engine::managed_fields::{self, Subject};
use crate::engine::metadata;
use crate::engine::options::{CreateOptions, Preconditions, UpdateOptions};
use crate::engine::scope::Scope;
use crate::engine::strategy::ObjectPart;
use apiserver_storage::{Entry, Expect, ReadAt, Write};
use async_trait::async_trait;
use machinery_meta::{FieldError, FieldPath, GroupKind, GroupVersionKind};
use machinery_schema::Tree;
use std::sync::Arc;

/// An unconditional change meets at most this many others before the answer asks the client to retry: more than five
/// writers of one object at the same moment are a client's mistake.
pub const UPDATE_ATTEMPTS: usize = 16;

/// The change a client requests, applied to the live object afresh in every attempt.
#[async_trait]
pub trait UpdatedObject: Send + Sync {
    /// The candidate made from the live object, defaults and all; `None` when there is none yet.
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError>;

    /// Reports whether the candidate already has its field owners.
    fn has_field_owners(&self) -> bool {
        false
    }

    /// The kind of the candidate, where it is not the stored kind but a subresource's own (`Scale`).
    fn kind(&self) -> Option<GroupVersionKind> {
        None
    }

    /// The subject under which owners of such a candidate's fields are recorded.
    fn window(&self) -> Option<Subject<'_>> {
        None
    }

    /// The object to store of an admitted candidate of that kind.
    fn stored(&self, candidate: Tree, _live: &Tree) -> Result<Tree, RegistryError> {
        Ok(candidate)
    }

    /// A stored object as that kind shows it, which is what admission validates.
    fn view(&self, _stored: &Tree) -> Result<Option<Tree>, RegistryError> {
        Ok(None)
    }

    /// Preconditions on the live object (a uid in the body).
    fn preconditions(&self) -> Preconditions {
        Preconditions::default()
    }
}

/// An update is a whole object.
#[derive(Debug)]
pub struct Replacement(pub Tree);

#[async_trait]
impl UpdatedObject for Replacement {
    async fn apply(&self, _: &RequestContext, _: Option<&Tree>) -> Result<Tree, RegistryError> {
        Ok(self.0.clone())
    }

    fn preconditions(&self) -> Preconditions {
        let uid = metadata::uid(&self.0);
        let uid = (!uid.is_empty()).then(|| machinery_meta::Uid(uid.to_owned()));
        Preconditions {
            uid,
            resource_version: None,
        }
    }
}

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
                self.check_preconditions(&change.preconditions(), &nothing, target.name, key.as_str())?;
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
        self.check_preconditions(&preconditions, &old, update.target.name, live.key.as_str())?;
        let candidate = self.candidate(ctx, update, &old).await?;
        let (object, admitted) = self.admit_candidate(ctx, update, candidate, &old).await?;
        for warning in self.row.strategy.warnings(object.root(), Some(old.root())) {
            ctx.warnings.add(warning);
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
        let candidate = update.change.apply(ctx, Some(old)).await?;
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
                object,
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

    /// A revision in the candidate must be the live one; none is the live one where the kind allows it.
    fn check_revision(&self, object: &mut Tree, old: &Tree, name: &str) -> Result<(), RegistryError> {
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

    /// Uid and revision a caller insists on.
    pub(super) fn check_preconditions(
        &self,
        wanted: &Preconditions,
        old: &Tree,
        name: &str,
        key: &str,
    ) -> Result<(), RegistryError> {
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
