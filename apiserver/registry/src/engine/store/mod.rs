//! Verbs on one resource, carried out on storage.
//!
//! A [`Store`] is a row and the registry it belongs to; it is made on lookup and cheap. Trees go in and come out in
//! the served version of the row; [`crate::engine::codec`] turns them into the records storage keeps.

mod collection;
mod create;
mod delete;
pub mod deletion;
pub mod early_expiry;
pub mod expiry;
mod follow;
mod migration;
mod node_growth;
mod preconditions;
mod read;
mod shown;
mod tracking;
mod unreadable;
mod update;
mod updated_object;
mod watch;

#[cfg(test)]
mod follow_tests;
#[cfg(test)]
mod permit_tests;

pub use delete::Deleted;
pub use follow::{Followed, Follower, ObjectChange};
pub(crate) use node_growth::NodeGrowth;
pub use read::ListPage;
pub use update::{Target, UPDATE_ATTEMPTS};
pub use updated_object::{Replacement, UpdatedObject};
pub use watch::{WatchEvent, Watcher};

use crate::engine::admission::{Admitted, Attributes, Door, Mutated, Operation};
use crate::engine::allocation::AllocationChange;
use crate::engine::codec;
use crate::engine::context::{LARGE_OBJECT_BYTES, RequestContext};
use crate::engine::error::RegistryError;
use crate::engine::latency::LatencyPart;
use crate::engine::operation_options::OperationOptions;
use crate::engine::registry::Registry;
use crate::engine::row::ResourceRow;
use crate::engine::scope::Scope;
use crate::engine::traits::path_segment_problems;
use crate::engine::turns::{Reader, Turns};
use crate::engine::user_class::UserClass;
use crate::shared::validation::each_once;
use apiserver_storage::encryption::Seal;
use apiserver_storage::{
    Claim, Entry, Expect, Key, Op, Prefix, ReadAt, Record, Storage, StorageError, Write,
};
use machinery_meta::{FieldError, Revision, UserInfo};
use machinery_schema::Tree;
use std::sync::Arc;

/// The verbs of one served resource.
#[derive(Debug, Clone)]
pub struct Store {
    pub row: Arc<ResourceRow>,
    pub(crate) registry: Registry,
    /// Owner of the work that reading takes; the server itself where there is none.
    reader: Option<Reader>,
}

/// The result of a write.
#[derive(Debug)]
pub enum Written {
    /// The object as stored.
    Stored { entry: Arc<Entry>, created: bool },
    /// The object as it would be (dry run), or as it last was (removed by this update).
    Shown { object: Tree, created: bool },
}

/// The result of a commit.
#[derive(Debug)]
pub(crate) enum Committed {
    /// The object as stored (nothing after a delete), and the place of the change in the order.
    Done(Option<Arc<Entry>>, Revision),
    /// The object's own expectation did not hold.
    Moved,
    /// Something that goes along (an address, a port) was taken meanwhile.
    Contended,
}

impl Committed {
    /// The stored object; `None` when the whole attempt has to be made again.
    pub(crate) fn entry(self) -> Option<Arc<Entry>> {
        match self {
            Self::Done(entry, _) => entry,
            Self::Moved | Self::Contended => None,
        }
    }
}

impl Written {
    pub fn created(&self) -> bool {
        match self {
            Self::Stored { created, .. } | Self::Shown { created, .. } => *created,
        }
    }
}

impl Store {
    /// The verbs of a row, for the server itself.
    pub(crate) fn new(row: Arc<ResourceRow>, registry: &Registry) -> Self {
        Self {
            row,
            registry: registry.clone(),
            reader: None,
        }
    }

    /// The same for a request of this user in a namespace, or in none: what reading takes is charged to them.
    #[must_use]
    pub fn read_by(self, user: &Arc<UserInfo>, namespace: &Arc<str>) -> Self {
        let reader = Reader {
            user: Arc::clone(user),
            namespace: Arc::clone(namespace),
        };
        Self {
            reader: Some(reader),
            ..self
        }
    }

    pub(crate) fn turns(&self) -> Turns {
        Turns::of(self.registry.runtime(), self.reader.as_ref())
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        self.registry.storage()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The object of an entry, in this row's version.
    pub fn decode(&self, entry: &Entry) -> Result<Tree, RegistryError> {
        codec::decode(&self.row, entry)
    }

    /// The record of an object in this row's version.
    pub fn encode(&self, object: &Tree) -> Result<Record, RegistryError> {
        codec::encode(&self.row, object)
    }

    /// A cluster's object as if it were stored now, for kinds that are made when they are requested.
    pub async fn made(&self, name: &str, object: &Tree) -> Result<Entry, RegistryError> {
        // Where storage does not answer, that may be what the object is to show.
        let now = self.storage().current_revision().await.unwrap_or_default();
        Ok(Entry {
            key: self.key(&Scope::Cluster, name)?,
            revision: now,
            created: now,
            expires: None,
            record: self.encode(object)?,
            seal: Seal::default(),
        })
    }

    /// Waits for a turn among the heavy work where validation of so many bytes is heavy, or that of the kind.
    async fn turn_to_validate(&self, ctx: &RequestContext, bytes: usize) -> Result<(), RegistryError> {
        let bytes = match self.row.strategy.is_heavy_to_validate() {
            true => bytes.max(LARGE_OBJECT_BYTES),
            false => bytes,
        };
        ctx.heavy_from(bytes, LARGE_OBJECT_BYTES).await
    }

    /// The namespace of a scope in which this kind's objects can be. A cluster-scoped kind has none below a namespace,
    /// for any client.
    pub(crate) fn place<'s>(&self, scope: &'s Scope) -> Result<&'s str, RegistryError> {
        match scope {
            Scope::Namespace(_) if !self.row.namespaced => Err(RegistryError::NoSuchResource),
            scope => Ok(scope.namespace()),
        }
    }

    pub(crate) fn key(&self, scope: &Scope, name: &str) -> Result<Key, RegistryError> {
        let namespace = self.place(scope)?;
        if name.is_empty() {
            return Err(RegistryError::BadRequest("Name parameter required.".into()));
        }
        let problems = path_segment_problems(name, false);
        if !problems.is_empty() {
            return Err(RegistryError::BadRequest(format!(
                "Name parameter invalid: {name:?}: {}",
                problems.join(";")
            )));
        }
        // A name that cannot be a key cannot be an object's either.
        Key::parse(&self.row.key(namespace, name))
            .map_err(|_| RegistryError::not_found(&self.row.group_resource(), name))
    }

    pub(crate) fn prefix(&self, scope: &Scope) -> Result<Prefix, RegistryError> {
        Prefix::parse(&self.row.collection(self.place(scope)?))
            .map_err(|error| RegistryError::BadRequest(error.to_string()))
    }

    /// The entry under a key at the latest revision.
    pub(crate) async fn read_entry(&self, key: &Key) -> Result<Option<Arc<Entry>>, RegistryError> {
        let found = self
            .storage()
            .get(key, ReadAt::Latest)
            .await
            .map_err(|error| self.storage_error(&error))?;
        self.shown_if(found.entry).await
    }

    /// The object that a change is for. Errors of an unreadable one have other words than a reader's, as upstream's.
    async fn read_live(&self, key: &Key) -> Result<Option<Arc<Entry>>, RegistryError> {
        let found = self.storage().get(key, ReadAt::Latest).await;
        let error_of = |error| unreadable::change_error(&error).unwrap_or_else(|| self.storage_error(&error));
        let found = found.map_err(error_of)?;
        self.shown_if(found.entry).await
    }

    /// Reports whether a key has an entry, readable or not.
    pub(crate) async fn is_taken(&self, key: &Key) -> Result<bool, RegistryError> {
        match self.storage().get(key, ReadAt::Latest).await {
            Ok(found) => Ok(found.entry.is_some()),
            Err(error) if error.is_unreadable() => Ok(true),
            Err(error) => Err(self.storage_error(&error)),
        }
    }

    /// Writes what was admitted, with whatever goes along: the request's point of no return.
    pub(crate) async fn commit(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        write: Write,
        with: Vec<Write>,
    ) -> Result<Committed, RegistryError> {
        self.check_permit(admitted, &write)?;
        let room = self.node_room(ctx, admitted, &write).await?;
        let given = match &write.op {
            Op::Put { record, .. } if self.row.stored.webhook.is_some() => Some(record.clone()),
            Op::Put { .. } | Op::Delete | Op::Check => None,
        };
        let write = self.to_storage(write).await?;
        ctx.begin_write()?;
        let (key, is_new) = (write.key.clone(), write.expect == Expect::Absent);
        let mut group = with;
        group.push(write);
        let begun = ctx.runtime.monotonic();
        let committed = self.storage().commit_for(claim(ctx), group).await;
        let took = ctx.runtime.monotonic().saturating_sub(begun);
        ctx.latency.add(LatencyPart::Storage, took);
        match committed {
            Ok(events) => {
                room.into_iter().for_each(|room| room.written(&events));
                let own = events.iter().rev().find(|event| event.key == key);
                let revision = own.map_or(Revision::ZERO, |event| event.revision);
                let entry = own.and_then(|event| event.entry.clone());
                Ok(Committed::Done(self.written(entry, given).await?, revision))
            }
            Err(StorageError::Conflict { key: at, .. }) if at == key => Ok(Committed::Moved),
            Err(error) if is_new && error.is_unreadable() && self.is_taken(&key).await? => {
                Ok(Committed::Moved)
            }
            Err(StorageError::Conflict { .. }) => Ok(Committed::Contended),
            Err(error) => Err(self.write_error(&error, admitted)),
        }
    }

    /// Refuses a dry run whose object the quota would refuse, with what would be written with it.
    pub(crate) async fn check_room(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        write: Write,
        with: Vec<Write>,
    ) -> Result<(), RegistryError> {
        drop(self.node_room(ctx, admitted, &write).await?);
        let mut group = with;
        group.push(write);
        let room = self.storage().has_room_for(claim(ctx), &group);
        room.map_err(|error| self.write_error(&error, admitted))
    }

    /// The error of a failed write for its client; an exceeded quota reads as admission's refusal.
    fn write_error(&self, error: &StorageError, admitted: &Admitted) -> RegistryError {
        match error {
            StorageError::NamespaceQuotaExceeded { .. } => {
                let name = &admitted.attributes().name;
                RegistryError::forbidden(&self.row.group_resource(), name, error.to_string())
            }
            other => self.storage_error(other),
        }
    }

    /// A permit is for one operation on one object, and nothing else is written with it.
    fn check_permit(&self, admitted: &Admitted, write: &Write) -> Result<(), RegistryError> {
        let Attributes {
            resource,
            namespace,
            name,
            ..
        } = admitted.attributes();
        let own = self.row.group_version().resource(&self.row.plural);
        let namespace = if self.row.namespaced { namespace } else { "" };
        if *resource == own
            && *write.key.as_str() == *self.row.key(namespace, name)
            && admitted.permits(write)
        {
            return Ok(());
        }
        tracing::error!(key = %write.key, ?admitted, "a write that was not admitted is refused");
        Err(RegistryError::Internal(
            "the write is not the one that was admitted".to_owned(),
        ))
    }

    /// Stores a record with the kind's time to live: every write grants it anew, as upstream's `TTLFunc` does.
    pub(crate) fn put(&self, key: Key, record: Record, expect: Expect) -> Write {
        let ttl = self.registry.time_to_live(&self.row);
        let op = Op::Put { record, ttl };
        Write { key, expect, op }
    }

    /// Attributes for admission of an operation on this kind.
    pub(crate) fn attributes(&self, operation: Operation, target: Target<'_>, dry_run: bool) -> Attributes {
        // Upstream's creates of a namespace are within that namespace.
        let own = operation == Operation::Create
            && self.row.gvk.group.is_empty()
            && self.row.plural == "namespaces";
        Attributes {
            operation,
            kind: self.row.gvk.clone(),
            resource: self.row.group_version().resource(&self.row.plural),
            built_in: self.row.built_in,
            subresource: target.part.subresource().to_owned(),
            namespace: if own {
                target.name
            } else {
                target.scope.namespace()
            }
            .to_owned(),
            name: target.name.to_owned(),
            addressed: operation != Operation::Create,
            dry_run,
            options: OperationOptions::None,
        }
    }

    /// Lets the chain change the candidate; the kind's own defaults follow those of the schema.
    pub(crate) async fn mutate<'d>(
        &self,
        ctx: &RequestContext,
        door: Door<'d>,
        attributes: Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<Mutated<'d>, RegistryError> {
        let whole = attributes.kind == self.row.gvk;
        let mutated = door.mutate(ctx, attributes, object, old).await?;
        if whole && door.has_plugins() {
            self.row.strategy.defaults(object);
        }
        Ok(mutated)
    }

    pub(crate) async fn allocate(
        &self,
        ctx: &RequestContext,
        change: AllocationChange<'_>,
        object: &mut Tree,
    ) -> Result<Vec<Write>, RegistryError> {
        match self.registry.allocator(&self.row) {
            Some(allocate) => allocate(ctx, &self.registry, change, object).await,
            None => Ok(Vec::new()),
        }
    }

    /// An object as it would be read once it is stored: another version may keep more of it, or less.
    pub(super) fn as_read(&self, object: Tree) -> Result<Tree, RegistryError> {
        match self.row.stored.conversion {
            Some(_) => codec::convert(&self.row, &self.row, &object),
            None => Ok(object),
        }
    }

    /// Fields behind a feature gate that is off are not stored, unless the live object uses them.
    pub(crate) fn drop_disabled_fields(&self, object: &mut Tree, old: Option<&Tree>) {
        if !self.row.custom {
            self.registry.disabled_fields().drop_from(object, old);
        }
    }

    /// Refuses an object with problems. A request whose time is over has that answer: checks that it ended may be among them.
    pub(crate) fn refuse_invalid(
        &self,
        ctx: &RequestContext,
        name: &str,
        found: Vec<FieldError>,
    ) -> Result<(), RegistryError> {
        if found.is_empty() {
            return Ok(());
        }
        ctx.in_time()?;
        // The same problem of two members with one path is reported once.
        let errors = each_once(Vec::new(), found);
        Err(RegistryError::Invalid {
            // Upstream validates the stored kind: an event of either version is an `Event` of the core group.
            kind: self.row.stored.gvk.group_kind(),
            name: name.to_owned(),
            errors,
        })
    }

    pub(crate) fn storage_error(&self, error: &StorageError) -> RegistryError {
        match error {
            StorageError::UnreadableRange { found, is_cut } => {
                unreadable::list_error(&self.row.group_resource(), found, *is_cut)
            }
            other => storage_error(other),
        }
    }
}

/// The bounds that a request's writes have.
fn claim(ctx: &RequestContext) -> Claim {
    match UserClass::of(&ctx.user) {
        UserClass::Ordinary => Claim::User,
        UserClass::System | UserClass::Administrator => Claim::System,
    }
}

/// The error of a failed storage operation for its client.
pub(crate) fn storage_error(error: &StorageError) -> RegistryError {
    match error {
        StorageError::Compacted { .. } => RegistryError::Expired {
            message: error.to_string(),
            fresh_continue: None,
        },
        StorageError::Future { asked, current } => RegistryError::TooLargeRevision {
            requested: *asked,
            current: *current,
        },
        StorageError::Unreadable { key, cause } => {
            tracing::error!(%error, "failed to decode a stored object");
            RegistryError::Unreadable(unreadable::undecodable(key, cause))
        }
        StorageError::TooLarge { limit, .. } => RegistryError::TooLarge(*limit),
        StorageError::Sealed { key, cause } => {
            tracing::error!(%error, "failed to decrypt data");
            let asked = key.as_str().strip_prefix("/registry").unwrap_or(key.as_str());
            RegistryError::Unreadable(unreadable::untransformable(asked, cause))
        }
        // Upstream passes etcd's error on as it came.
        StorageError::NoSpace | StorageError::QuotaExceeded | StorageError::StoreQuotaExceeded => {
            RegistryError::Unclassified(error.to_string())
        }
        StorageError::PastShareExceeded { retry_seconds, .. } => RegistryError::TooManyRequests {
            message: format!("Too many requests: {error}"),
            seconds: *retry_seconds,
            causes: Vec::new(),
        },
        StorageError::Unavailable(reason) => RegistryError::Unavailable(reason.clone()),
        StorageError::Unreachable { .. } | StorageError::Closed => {
            RegistryError::Unavailable(error.to_string())
        }
        other => {
            tracing::error!(error = %other, "storage failed");
            RegistryError::Internal(other.to_string())
        }
    }
}
