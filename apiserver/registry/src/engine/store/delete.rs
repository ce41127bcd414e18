//! Delete: ask `deletion_step`, obey it.

use super::deletion::{Deletable, DeletionStep, Mark, deletion_step};
use super::{Committed, Store, Target, Written};
use crate::engine::admission::{Admitted, Door, Operation};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::{LARGE_BODY_BYTES, RequestContext};
use crate::engine::error::{OPTIMISTIC_LOCK_MESSAGE, RegistryError};
use crate::engine::metadata;
use crate::engine::options::{DeleteOptions, Preconditions};
use crate::engine::scope::Scope;
use crate::engine::store::update::UPDATE_ATTEMPTS;
use crate::engine::strategy::ObjectPart;
use apiserver_storage::{Entry, Expect, Write};
use jiff::Timestamp;
use machinery_meta::GroupResource;
use machinery_schema::{Ref, Step, Tree, Value};
use std::sync::Arc;

/// The result of a delete.
#[derive(Debug)]
pub enum Deleted {
    /// Nothing is left of the object; it is given as it last was.
    Removed(Tree),
    /// It is marked and waits for its finalizers or its grace period.
    Waiting(Written),
}

/// One attempt's end.
enum Attempt {
    Done(Deleted),
    /// The revision moved.
    Again,
    /// The object has this attempt's mark, and its revision moved before it could be removed.
    Marked(Arc<Entry>),
}

/// The step after an object is marked for deletion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterMark {
    Wait,
    Remove,
}

impl Store {
    /// Deletes by name. The caller's answer is the object or a `Status`, as the kind has it.
    pub async fn delete(
        &self,
        ctx: &RequestContext,
        scope: &Scope,
        name: &str,
        options: &DeleteOptions,
        door: Door<'_>,
    ) -> Result<Deleted, RegistryError> {
        let key = self.key(scope, name)?;
        let part = ObjectPart::Main;
        let target = Target { scope, name, part };
        let mut attributes = self.attributes(Operation::Delete, target, options.dry_run);
        attributes.options = options.into();
        attributes.addressed = !options.of_collection;
        let mut options = options.clone();
        let mut marked: Option<Arc<Entry>> = None;
        for _ in 0..UPDATE_ATTEMPTS {
            ctx.in_time()?;
            let live = match (self.read_entry(&key).await?, &marked) {
                (Some(live), None) => live,
                (Some(live), Some(marked)) if live.is_same_object(marked) => live,
                // Others see the mark and remove the object too: upstream's `ignoreNotFound`.
                (_, Some(marked)) => return Ok(Deleted::Removed(self.decode(marked)?)),
                (None, None) => {
                    return Err(RegistryError::not_found(&self.row.group_resource(), name));
                }
            };
            ctx.heavy_from(live.record.len(), LARGE_BODY_BYTES).await?;
            let object = self.decode(&live)?;
            self.check_delete_preconditions(&options.preconditions, &object)?;
            let admitted = door.delete(ctx, attributes.clone(), &object).await?;
            if let Some(detail) = self.row.strategy.refuse_delete(object.root()) {
                return Err(RegistryError::forbidden(&self.row.group_resource(), name, detail));
            }
            match self.delete_once(ctx, &admitted, &live, object, &options).await? {
                Attempt::Done(deleted) => return Ok(deleted),
                Attempt::Again => {}
                Attempt::Marked(entry) => {
                    // The mark is this request's own change.
                    if let Some(version) = &mut options.preconditions.resource_version {
                        *version = entry.revision.to_string();
                    }
                    marked = Some(entry);
                }
            }
            // An insisted-on revision is checked against the new state; the uid must hold all along.
            let uid = &mut options.preconditions.uid;
            uid.get_or_insert_with(|| live.record.header.uid.clone());
        }
        Err(RegistryError::conflict(
            &self.row.group_resource(),
            name,
            OPTIMISTIC_LOCK_MESSAGE,
        ))
    }

    async fn delete_once(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        live: &Arc<Entry>,
        object: Tree,
        options: &DeleteOptions,
    ) -> Result<Attempt, RegistryError> {
        let strategy = &self.row.strategy;
        let view = self.deletable(&object, options);
        let now = Timestamp::from_second(ctx.runtime.now().as_second()).unwrap_or_default();
        match deletion_step(&view, options, strategy.garbage_policy(), now) {
            DeletionStep::RemoveNow if !strategy.keeps_after_finalizers(object.root()) => {
                self.remove(ctx, admitted, live, object, options.dry_run).await
            }
            DeletionStep::RemoveNow => {
                let mark = held_mark(&view, now);
                let object = self.marked(object, &mark);
                self.store_marked(ctx, admitted, live, object, AfterMark::Wait, options.dry_run)
                    .await
            }
            DeletionStep::MarkDeleting { mark, then_remove } => {
                let then = match then_remove && !strategy.keeps_after_finalizers(object.root()) {
                    true => AfterMark::Remove,
                    false => AfterMark::Wait,
                };
                let object = self.marked(object, &mark);
                self.store_marked(ctx, admitted, live, object, then, options.dry_run)
                    .await
            }
            DeletionStep::AlreadyDeleting => Ok(Attempt::Done(Deleted::Waiting(Written::Stored {
                entry: Arc::clone(live),
                created: false,
            }))),
        }
    }

    fn deletable(&self, object: &Tree, options: &DeleteOptions) -> Deletable {
        let seconds = object
            .at(&["metadata", "deletionGracePeriodSeconds"])
            .and_then(Ref::as_i64);
        Deletable {
            deletion_timestamp: metadata::time(object, "deletionTimestamp"),
            deletion_grace_period_seconds: seconds,
            finalizers: metadata::finalizers(object),
            generation: metadata::generation(object),
            graceful: self
                .row
                .strategy
                .graceful(object.root(), options.grace_period_seconds),
        }
    }

    fn marked(&self, mut object: Tree, mark: &Mark) -> Tree {
        apply_mark(&mut object, mark);
        self.row.strategy.mark_deleting(&mut object);
        object
    }

    /// Writes the marked object, and removes it after that where nothing holds it.
    async fn store_marked(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        live: &Arc<Entry>,
        object: Tree,
        then: AfterMark,
        dry_run: bool,
    ) -> Result<Attempt, RegistryError> {
        if dry_run {
            return Ok(Attempt::Done(Deleted::Waiting(Written::Shown {
                object,
                created: false,
            })));
        }
        let before = self.decode(live)?;
        let entry = if object == before {
            Arc::clone(live)
        } else {
            let write = self.put(live.key.clone(), self.encode(&object)?, Expect::At(live.revision));
            let Some(entry) = self.commit(ctx, admitted, write, Vec::new()).await?.entry() else {
                return Ok(Attempt::Again);
            };
            entry
        };
        if then == AfterMark::Remove {
            let object = self.decode(&entry)?;
            return match self.remove(ctx, admitted, &entry, object, false).await? {
                Attempt::Again => Ok(Attempt::Marked(entry)),
                attempt => Ok(attempt),
            };
        }
        Ok(Attempt::Done(Deleted::Waiting(Written::Stored {
            entry,
            created: false,
        })))
    }

    async fn remove(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        live: &Arc<Entry>,
        mut object: Tree,
        dry_run: bool,
    ) -> Result<Attempt, RegistryError> {
        if !dry_run {
            let with = self.allocate(ctx, AllocationChange::Delete, &mut object).await?;
            let write = Write::delete(live.key.clone(), live.revision);
            let Committed::Done(_, revision) = self.commit(ctx, admitted, write, with).await? else {
                return Ok(Attempt::Again);
            };
            object.set_str(&["metadata", "resourceVersion"], &revision.to_string());
        }
        Ok(Attempt::Done(Deleted::Removed(object)))
    }

    /// Uid and revision that a delete insists on.
    pub fn check_delete_preconditions(
        &self,
        wanted: &Preconditions,
        object: &Tree,
    ) -> Result<(), RegistryError> {
        let stored = &self.row.stored.gvk;
        let kind = GroupResource::new(&stored.group, &stored.kind);
        let refuse = |detail: String| Err(RegistryError::conflict(&kind, metadata::name(object), detail));
        if let Some(uid) = &wanted.uid
            && uid.0 != metadata::uid(object)
        {
            return refuse(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                metadata::uid(object)
            ));
        }
        if let Some(version) = &wanted.resource_version
            && version != metadata::resource_version(object)
        {
            return refuse(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                metadata::resource_version(object)
            ));
        }
        Ok(())
    }
}

/// The mark of an object that only its kind's own hold keeps.
fn held_mark(view: &Deletable, now: Timestamp) -> Mark {
    Mark {
        deletion_timestamp: view
            .deletion_timestamp
            .filter(|known| *known <= now)
            .unwrap_or(now),
        deletion_grace_period_seconds: 0,
        finalizers: view.finalizers.clone(),
        generation: view.generation,
    }
}

fn apply_mark(object: &mut Tree, mark: &Mark) {
    let time = metadata::format_time(mark.deletion_timestamp);
    object.with(&["metadata"], |mut meta| {
        meta.set("deletionTimestamp", time.as_str());
        meta.set("deletionGracePeriodSeconds", mark.deletion_grace_period_seconds);
        meta.remove("finalizers");
        for finalizer in &mark.finalizers {
            meta.entry("finalizers").push(finalizer.as_str());
        }
    });
    if mark.generation > 0 {
        object.set(
            &[Step::Name("metadata"), Step::Name("generation")],
            Value::Int(mark.generation),
        );
    }
}
