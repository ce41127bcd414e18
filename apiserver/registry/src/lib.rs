//! The registry turns verbs on a kind into reads and writes of storage.
//!
//! A create, once `endpoints` has decoded it with defaults: the namespace of the request goes in, admission mutates
//! (defaults again, see [`admission`]), [`metadata`] fills name, uid and times, the kind's [`strategy`] prepares, metadata and strategy
//! validate, admission validates, [`codec`](engine::codec) encodes once into three slices, storage writes. An update does the same to
//! the live object, in every attempt of its loop, and writes nothing when nothing changed. A delete asks one pure
//! function ([`store::deletion`]) what to do.
//!
//! A built-in kind is a folder of [`kinds`]. It is served as a [`row`] (all that others need to know) with a strategy (what it decides
//! itself, here by the hooks of its [`Kind`]). Custom resources are rows with a strategy over a schema; the rest treats them alike. [`registry`] holds the rows.
//!
//! Absent: HTTP, authorization, protobuf, any knowledge of the requesting user beyond [`RequestContext`].

pub mod custom;
mod engine;
pub mod kinds;
mod shared;

pub use engine::{
    admission, context, error, kind, latency, managed_fields, metadata, options, registry, row, scope, store,
    strategy, verbs, version_webhook,
};
pub use shared::{columns, conditions, label_selector, validation};

/// Entries of storage, which stores answer with: the one encoded copy, shared.
pub use apiserver_storage::{Entry, Record};
pub use engine::admission::{
    Admission, Admitted, Attributes, Door, Mutated, Operation, SystemDoors, SystemWriter,
};
pub use engine::allocation::{Allocators, BuiltIn};
pub use engine::context::{RequestContext, RequestRecorder, TIME_IS_UP, Warnings};
pub use engine::error::{DeniedStatus, RegistryError};
pub use engine::event_recorder::EventRecorder;
pub use engine::kind::Kind;
pub use engine::master_leases::MasterLeases;
pub use engine::node_ports::NodePorts;
pub use engine::operation_options::OperationOptions;
pub use engine::point_of_no_return::PointOfNoReturn;
pub use engine::registry::{Registry, Rows, WeakRegistry};
pub use engine::row::{OpenApiSchema, ResourceRow, ScalePaths, Subresource, SubresourceRole};
pub use engine::scope::Scope;
pub use engine::selectable::Selectable;
pub use engine::store::{
    Deleted, Followed, Follower, ListPage, ObjectChange, Replacement, Store, Target, UpdatedObject,
    WatchEvent, Watcher, Written,
};
pub use engine::stored::Stored;
pub use engine::strategy::{ObjectPart, Strategy};
pub use engine::user_class::{SYSTEM_NAMESPACES, UserClass};
pub use engine::verbs::{Verb, Verbs};
pub use kinds::flowcontrol::BOOTSTRAP_OBJECTS as FLOW_CONTROL_BOOTSTRAP_OBJECTS;
pub use kinds::{built_in_values, stored_resources};
