//! Create: fill metadata, admit, prepare, validate, store.

use super::{Committed, Store, Target, Written};
use crate::engine::admission::{Door, Mutated, Operation};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata::owners::{Moment, remove_repeated_owners};
use crate::engine::options::CreateOptions;
use crate::engine::scope::Scope;
use crate::engine::strategy::ObjectPart;
use crate::engine::{managed_fields, metadata};
use apiserver_storage::{Expect, Key, Record, Write};
use machinery_schema::Tree;

/// Generated names are tried this often before giving up.
const GENERATE_ATTEMPTS: usize = 8;
/// Addresses and ports picked for a new object were taken by others this often.
const ALLOCATE_ATTEMPTS: usize = 16;

impl Store {
    /// Stores a new object, decoded with defaults, in this scope.
    pub async fn create(
        &self,
        ctx: &RequestContext,
        scope: &Scope,
        mut object: Tree,
        options: &CreateOptions,
        door: Door<'_>,
    ) -> Result<Written, RegistryError> {
        metadata::wipe(&mut object);
        remove_repeated_owners(ctx, &mut object, Moment::Sent);
        let object = self.track_new(ctx, door, &options.field_manager, object).await?;
        self.create_tracked(ctx, scope, object, options, door).await
    }

    /// The rest of a create, once the object has its field manager.
    pub(super) async fn create_tracked(
        &self,
        ctx: &RequestContext,
        scope: &Scope,
        mut object: Tree,
        options: &CreateOptions,
        door: Door<'_>,
    ) -> Result<Written, RegistryError> {
        metadata::validation::match_namespace(&mut object, &self.row, self.place(scope)?)?;
        if self.row.terminating.is_cancelled() {
            let detail = "create not allowed while custom resource definition is terminating";
            let resource = self.row.group_resource();
            return Err(RegistryError::forbidden(
                &resource,
                metadata::name(&object),
                detail,
            ));
        }
        // Upstream's dry run is stopped before its storage, which looks at the revision.
        if !options.dry_run && !metadata::resource_version(&object).is_empty() {
            return Err(RegistryError::Unclassified(
                "resourceVersion should not be set on objects to be created".into(),
            ));
        }
        let target = Target {
            scope,
            name: metadata::name(&object),
            part: ObjectPart::Main,
        };
        let mut attributes = self.attributes(Operation::Create, target, options.dry_run);
        attributes.addressed = options.addressed;
        attributes.options = options.into();
        let mutated = self.mutate(ctx, door, attributes, &mut object, None).await?;
        remove_repeated_owners(ctx, &mut object, Moment::Mutated);
        // A webhook may have moved it: stored here it would be listed there.
        metadata::validation::match_namespace(&mut object, &self.row, self.place(scope)?)?;
        let generated =
            metadata::name(&object).is_empty() && !object.str_at(&["metadata", "generateName"]).is_empty();
        if !generated {
            return self.create_named(ctx, scope, object, options, mutated).await;
        }
        for _ in 0..GENERATE_ATTEMPTS {
            let mut candidate = object.clone();
            let base = object.str_at(&["metadata", "generateName"]);
            candidate.set_str(
                &["metadata", "name"],
                &self.row.strategy.generated_name(base, &ctx.runtime),
            );
            let named = mutated.clone().named(metadata::name(&candidate));
            match self.create_named(ctx, scope, candidate, options, named).await {
                Err(RegistryError::AlreadyExists { .. }) => {}
                other => return other,
            }
        }
        let name = object.str_at(&["metadata", "generateName"]).to_owned();
        Err(RegistryError::GeneratedNamesTaken {
            resource: self.row.group_resource(),
            name,
        })
    }

    /// The rest of a create, once the object has its name.
    async fn create_named(
        &self,
        ctx: &RequestContext,
        scope: &Scope,
        mut object: Tree,
        options: &CreateOptions,
        mutated: Mutated<'_>,
    ) -> Result<Written, RegistryError> {
        metadata::fill_new(&mut object, ctx);
        self.prepare_new(ctx, &mut object);
        self.validate_created(ctx, &object).await?;
        // A kind may give the name itself, as limit ranges do: the permit is for the object of that name.
        let name = metadata::name(&object).to_owned();
        let admitted = mutated.named(&name).validate(ctx, &object, None).await?;
        for warning in self.row.strategy.warnings(object.root(), None) {
            ctx.warnings.add(warning);
        }
        let key = self.key(scope, &name)?;
        if options.dry_run {
            if self.is_taken(&key).await? {
                return Err(self.already_exists(&name));
            }
            // What would be taken is shown, and not taken.
            let with = self.allocate(ctx, AllocationChange::Create, &mut object).await?;
            let write = self.put(key, self.encode(&object)?, Expect::Absent);
            self.check_room(ctx, &admitted, write, with).await?;
            return Ok(Written::Shown {
                object: self.as_read(object)?,
                created: true,
            });
        }
        for _ in 0..ALLOCATE_ATTEMPTS {
            ctx.in_time()?;
            let (record, with) = self.allocated(ctx, &object).await?;
            let write = self.put(key.clone(), record, Expect::Absent);
            let committed = match self.commit(ctx, &admitted, write, with).await {
                // As upstream: the record may go where it makes the object too large.
                Err(RegistryError::TooLarge(_)) if managed_fields::is_droppable(&object) => {
                    managed_fields::forget(&mut object);
                    continue;
                }
                committed => committed?,
            };
            match committed {
                Committed::Done(Some(entry), _) => return Ok(Written::Stored { entry, created: true }),
                Committed::Done(None, _) | Committed::Moved => {
                    return Err(self.exists_answer(&key, &name).await);
                }
                Committed::Contended => {}
            }
        }
        let resource = self.row.group_resource();
        Err(RegistryError::ServerTimeout {
            resource,
            verb: "create".into(),
            seconds: 1,
        })
    }

    /// The record of a new object with what it takes elsewhere, afresh in every attempt.
    async fn allocated(
        &self,
        ctx: &RequestContext,
        object: &Tree,
    ) -> Result<(Record, Vec<Write>), RegistryError> {
        if self.registry.allocator(&self.row).is_none() {
            return Ok((self.encode(object)?, Vec::new()));
        }
        let mut allocated = object.clone();
        let with = self
            .allocate(ctx, AllocationChange::Create, &mut allocated)
            .await?;
        Ok((self.encode(&allocated)?, with))
    }

    fn prepare_new(&self, ctx: &RequestContext, object: &mut Tree) {
        let strategy = &self.row.strategy;
        if self.row.has_status() && !strategy.keeps_status_on_create() {
            object.reset("status");
        }
        if strategy.counts_generation() {
            metadata::set_generation(object, 1);
        }
        strategy.prepare_for_create(ctx, object);
        self.drop_disabled_fields(object, None);
    }

    async fn validate_created(&self, ctx: &RequestContext, object: &Tree) -> Result<(), RegistryError> {
        self.turn_to_validate(ctx, object.arena_bytes()).await?;
        let strategy = self.row.strategy.as_ref();
        let mut problems = metadata::validation::validate_new(object, &self.row, strategy);
        problems.extend(strategy.validate_within(ctx, object.root()));
        self.refuse_invalid(ctx, metadata::name(object), problems)
    }

    pub(super) fn already_exists(&self, name: &str) -> RegistryError {
        RegistryError::AlreadyExists {
            resource: self.row.group_resource(),
            name: name.to_owned(),
            deleting: false,
        }
    }

    /// The name is taken; say so, and whether its holder is on its way out.
    async fn exists_answer(&self, key: &Key, name: &str) -> RegistryError {
        let deleting =
            matches!(self.read_entry(key).await, Ok(Some(entry)) if entry.record.header.is_deleting());
        RegistryError::AlreadyExists {
            resource: self.row.group_resource(),
            name: name.to_owned(),
            deleting,
        }
    }
}
