//! The registry turns verbs on a kind into reads and writes of storage.
//!
//! A create, once `endpoints` has decoded it with defaults: the namespace of the request goes in, admission mutates
//! (defaults again, see [`admission`]), [`metadata`] fills name, uid and times, the kind's [`strategy`] prepares, metadata and strategy
//! validate, admission validates, [`codec`] encodes once into three slices, storage writes. An update does the same to
//! the live object, in every attempt of its loop, and writes nothing when nothing changed. A delete asks one pure
//! function ([`store::deletion`]) what to do.
//!
//! A built-in kind is a folder of [`kinds`]. It is served as a [`row`] (all that others need to know) with a strategy (what it decides
//! itself, here by the hooks of its [`Kind`]). Custom resources are rows with a strategy over a schema; the rest cannot tell them apart. [`registry`] holds the rows.
//!
//! Absent: HTTP, authorization, protobuf, any knowledge of who is asking beyond [`RequestContext`].

pub mod admission;
mod codec;
pub mod columns;
pub mod conditions;
pub mod context;
mod continue_token;
pub mod custom;
mod defaults;
pub mod error;
mod event_recorder;
pub mod kind;
mod kind_strategy;
pub mod kinds;
pub mod label_selector;
pub mod latency;
pub mod managed_fields;
mod master_leases;
pub mod metadata;
mod not_enforced;
pub mod options;
mod point_of_no_return;
pub mod registry;
pub mod row;
pub mod scope;
pub mod store;
mod stored;
pub mod strategy;
mod user_class;
pub mod validation;
mod validation_rules;
mod values;
pub mod verbs;

pub use admission::{Admission, Admitted, Attributes, Door, Mutated, Operation, SystemDoors, SystemWriter};
/// Entries of storage, which stores answer with: the one encoded copy, shared.
pub use apiserver_storage::{Entry, Record};
pub use context::{RequestContext, RequestRecorder, TIME_IS_UP, Warnings};
pub use error::RegistryError;
pub use event_recorder::EventRecorder;
pub use kind::Kind;
pub use kinds::flowcontrol::BOOTSTRAP_OBJECTS as FLOW_CONTROL_BOOTSTRAP_OBJECTS;
pub use master_leases::MasterLeases;
pub use point_of_no_return::PointOfNoReturn;
pub use registry::{Registry, Rows};
pub use row::{OpenApiSchema, ResourceRow, ScalePaths, Selectable, Subresource, SubresourceRole};
pub use scope::Scope;
pub use store::{Deleted, ListPage, Replacement, Store, Target, UpdatedObject, WatchEvent, Watcher, Written};
pub use stored::Stored;
pub use strategy::{AllocationChange, ObjectPart, Strategy};
pub use user_class::{SYSTEM_NAMESPACES, UserClass};
pub use values::{built_in_values, stored_resources};
pub use verbs::{Verb, Verbs};
