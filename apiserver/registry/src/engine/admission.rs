//! The door to storage: every write, connection and subresource that makes something passes it.
//!
//! A handler asks the [`Door`] twice, as upstream does: [`Door::mutate`] may change the candidate, [`Mutated::validate`]
//! may only refuse what is about to be stored. The end is an [`Admitted`], which nothing else can make and which every
//! write to storage and every hook behind the API takes, so that a handler that forgets admission does not compile.
//!
//! The server's own writes pass without plugins, each under a name ([`SystemWriter`]), by a door that only the owner of the
//! storage has ([`SystemDoors`]); a write that carries out what was admitted before (the pod of a Binding or an Eviction)
//! follows that permit ([`Door::following`]). The store commits what the permit names and nothing else.
//!
//! Outside of this crate there is no write without a permit. A registry shows what is stored, and does not hand out the
//! storage that could be written to:
//!
//! ```
//! fn revision(registry: &apiserver_registry::Registry) {
//!     drop(registry.stored().current_revision());
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn raw(registry: &apiserver_registry::Registry) {
//!     drop(registry.storage().current_revision());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn write(registry: &apiserver_registry::Registry) {
//!     drop(registry.stored().commit(Vec::new()));
//! }
//! ```
//!
//! A door without plugins is opened by the storage's owner, or by an eviction for the budget that counts it:
//!
//! ```
//! use apiserver_registry::{Door, SystemDoors, SystemWriter};
//! fn door(doors: SystemDoors) -> Door<'static> {
//!     doors.door(SystemWriter::Startup)
//! }
//! ```
//!
//! ```compile_fail,E0624
//! use apiserver_registry::{Door, SystemWriter};
//! let door = Door::system(SystemWriter::Startup);
//! ```
//!
//! ```compile_fail,E0423
//! use apiserver_registry::SystemDoors;
//! let doors = SystemDoors(());
//! ```
//!
//! Nor is a permit made without a door, or a write committed without the verbs of [`Store`](crate::Store):
//!
//! ```compile_fail,E0451
//! fn permit(attributes: apiserver_registry::Attributes) -> apiserver_registry::Admitted {
//!     apiserver_registry::Admitted { attributes }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! async fn commit(
//!     store: apiserver_registry::Store,
//!     ctx: apiserver_registry::RequestContext,
//!     admitted: apiserver_registry::Admitted,
//!     write: apiserver_storage::Write,
//! ) {
//!     drop(store.commit(&ctx, &admitted, write, Vec::new()).await);
//! }
//! ```

use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::kind::Kind;
use crate::engine::operation_options::OperationOptions;
use apiserver_storage::{Expect, Op, Storage, Write};
use async_trait::async_trait;
pub use machinery_meta::Operation;
use machinery_meta::{GroupVersionKind, GroupVersionResource};
use machinery_schema::{Tree, apply_defaults};
use std::borrow::Cow;
use std::sync::Arc;

/// Attributes of an operation for admission, without the objects (apiserver's `admission.Attributes`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub operation: Operation,
    /// The kind of the object that is admitted: for a subresource with a kind of its own that one (`Binding`, `Scale`).
    pub kind: GroupVersionKind,
    pub resource: GroupVersionResource,
    /// The built-in kind of the resource.
    pub built_in: Option<&'static Kind>,
    pub subresource: String,
    pub namespace: String,
    /// Empty while a name is still to be generated.
    pub name: String,
    /// The name stands in the request's address, as it does in all requests but a plain create and a delete of a collection.
    pub addressed: bool,
    pub dry_run: bool,
    pub options: OperationOptions,
}

/// The admission chain: that of `apiserver-admission`, and models in tests.
#[async_trait]
pub trait Admission: Send + Sync {
    /// May change the candidate. Defaults are applied again afterwards.
    async fn mutate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError>;

    /// Validates the candidate. `object` is absent on delete.
    async fn validate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError>;
}

/// Writers inside the server that pass no plugins. A new one is a decision: its row says what it writes and why no
/// client can make it write something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemWriter {
    /// Objects that the server makes and completes itself: system namespaces, bootstrap RBAC, the `kubernetes` service,
    /// APIServices, flow schemas.
    Startup,
    /// Conditions and finalizers of CustomResourceDefinitions, and the objects of one that is deleted.
    CustomResources,
    /// Addresses of Services that storage lost or left behind, and the events about them.
    AllocatorRepair,
    /// The status of a disruption budget that an admitted eviction is counted against.
    DisruptionBudget,
    /// The usage of a quota that an admitted request is charged to.
    QuotaUsage,
    /// The day on which a token kept in a Secret was last used, as a label of the Secret.
    TokenTracking,
    /// A namespace in which something is created, where a plugin makes it first.
    NamespaceProvision,
}

impl SystemWriter {
    /// Reports whether an operation is of those that the writer is for.
    fn is_for(self, attributes: &Attributes) -> bool {
        let of = |group: &str, resource: &str, subresource: &str| {
            attributes.operation == Operation::Update
                && (&*attributes.resource.group, &*attributes.resource.resource) == (group, resource)
                && attributes.subresource == subresource
        };
        match self {
            Self::Startup | Self::CustomResources | Self::AllocatorRepair => true,
            Self::DisruptionBudget => of("policy", "poddisruptionbudgets", "status"),
            Self::QuotaUsage => of("", "resourcequotas", "status"),
            Self::TokenTracking => of("", "secrets", ""),
            Self::NamespaceProvision => {
                let resource = &attributes.resource;
                attributes.operation == Operation::Create
                    && (&*resource.group, &*resource.resource) == ("", "namespaces")
            }
        }
    }
}

/// The right to write past the plugins: by a door that names the writer, or as [`MasterLeases`](crate::MasterLeases). The
/// owner of the storage has it; a handler, which knows the registry alone, has not.
#[derive(Debug, Clone, Copy)]
pub struct SystemDoors(());

impl SystemDoors {
    /// The doors, for an owner of the storage itself.
    pub fn of(_storage: &Arc<dyn Storage>) -> Self {
        Self(())
    }

    /// The door of the server's own writes.
    pub fn door(self, writer: SystemWriter) -> Door<'static> {
        Door::system(writer)
    }
}

/// The way to an [`Admitted`].
#[derive(Clone, Copy)]
pub struct Door<'a>(DoorSource<'a>);

#[derive(Clone, Copy)]
enum DoorSource<'a> {
    Chain(&'a dyn Admission),
    System(SystemWriter),
    Following(&'a Admitted),
}

impl std::fmt::Debug for Door<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            DoorSource::Chain(_) => f.write_str("Chain"),
            DoorSource::System(writer) => f.debug_tuple("System").field(writer).finish(),
            DoorSource::Following(admitted) => f.debug_tuple("Following").field(admitted).finish(),
        }
    }
}

/// A permit for one operation on one object. Only a [`Door`] makes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    attributes: Attributes,
}

/// An operation whose candidate has passed the mutating part of the chain.
#[derive(Debug, Clone)]
pub struct Mutated<'a> {
    door: Door<'a>,
    attributes: Attributes,
}

impl Admitted {
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The door by which a disruption budget counts the eviction that this permit is for.
    ///
    /// # Errors
    /// The permit is for something else.
    pub fn disruption_budget(&self) -> Result<Door<'static>, RegistryError> {
        let Attributes {
            operation,
            resource,
            subresource,
            ..
        } = &self.attributes;
        let is_eviction = *operation == Operation::Create
            && (&*resource.group, &*resource.resource, &**subresource) == ("", "pods", "eviction");
        match is_eviction {
            true => Ok(Door::system(SystemWriter::DisruptionBudget)),
            false => Err(RegistryError::Internal(format!(
                "no eviction, but {operation:?} of {resource:?} {subresource:?}, is counted by a budget"
            ))),
        }
    }

    /// Reports whether this write, of the object under `key`, is what was admitted.
    pub(crate) fn permits(&self, write: &Write) -> bool {
        let made = matches!((&write.op, write.expect), (Op::Put { .. }, Expect::Absent));
        let changed = matches!(write.expect, Expect::At(_));
        !self.attributes.dry_run
            && match self.attributes.operation {
                Operation::Create => made,
                Operation::Update | Operation::Delete => changed,
                Operation::Connect => false,
            }
    }
}

impl<'a> Door<'a> {
    /// The door of a client's request.
    pub fn new(chain: &'a dyn Admission) -> Self {
        Self(DoorSource::Chain(chain))
    }

    /// The door of the server's own writes.
    pub(crate) const fn system(writer: SystemWriter) -> Self {
        Self(DoorSource::System(writer))
    }

    /// The door of a write that carries out what was admitted under another kind (upstream's `ValidateAllObjectFunc`).
    pub fn following(admitted: &'a Admitted) -> Self {
        Self(DoorSource::Following(admitted))
    }

    /// Lets the chain change the candidate; the defaults of the schema are applied again.
    pub async fn mutate(
        self,
        ctx: &RequestContext,
        attributes: Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<Mutated<'a>, RegistryError> {
        self.check(&attributes)?;
        if let DoorSource::Chain(chain) = self.0 {
            chain.mutate(ctx, &attributes, object, old).await?;
            apply_defaults(object);
        }
        Ok(Mutated {
            door: self,
            attributes,
        })
    }

    /// Asks about the delete of an object. The chain sees the name of the request, and that of a collection has none
    /// (upstream: `staticAdmissionAttrs` of endpoints/handlers/delete.go); the permit is for this object in any case.
    pub async fn delete(
        self,
        ctx: &RequestContext,
        attributes: Attributes,
        old: &Tree,
    ) -> Result<Admitted, RegistryError> {
        self.check(&attributes)?;
        if let DoorSource::Chain(chain) = self.0 {
            let unnamed = || Attributes {
                name: String::new(),
                ..attributes.clone()
            };
            let shown = match attributes.addressed {
                true => Cow::Borrowed(&attributes),
                false => Cow::Owned(unnamed()),
            };
            chain.validate(ctx, &shown, None, Some(old)).await?;
        }
        Ok(Admitted { attributes })
    }

    /// Admits the delete of an object that cannot be read: there is nothing that plugins could look at (upstream's
    /// `ValidateAllObjectFunc`). The caller has found that it cannot be.
    pub(crate) fn delete_unreadable(self, attributes: Attributes) -> Result<Admitted, RegistryError> {
        self.check(&attributes)?;
        Ok(Admitted { attributes })
    }

    /// A writer of the server's own writes what its name says.
    fn check(self, attributes: &Attributes) -> Result<(), RegistryError> {
        match self.0 {
            DoorSource::System(writer) if !writer.is_for(attributes) => {
                Err(RegistryError::Internal(format!(
                    "{writer:?} does not write {:?} of {:?}",
                    attributes.operation, attributes.resource
                )))
            }
            _ => Ok(()),
        }
    }

    /// Reports whether the write carries out an operation that was admitted before.
    pub(crate) fn is_following(self) -> bool {
        matches!(self.0, DoorSource::Following(_))
    }

    /// Reports whether plugins decide; the kind's defaults are then applied again after mutation.
    pub(crate) fn has_plugins(self) -> bool {
        matches!(self.0, DoorSource::Chain(_))
    }
}

impl Mutated<'_> {
    /// The same operation on an object that has got its name meanwhile.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.attributes.name);
        self
    }

    /// Asks whether this object may be.
    pub async fn validate(
        self,
        ctx: &RequestContext,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<Admitted, RegistryError> {
        if let DoorSource::Chain(chain) = self.door.0 {
            chain.validate(ctx, &self.attributes, Some(object), old).await?;
        }
        Ok(Admitted {
            attributes: self.attributes,
        })
    }
}
