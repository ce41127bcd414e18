//! Access of every component to the API: a client over any transport, and shared informers with projections.
//!
//! A [`Client`] sends requests over TLS, through a `kube::Client` from a kubeconfig, or calls a tower service in this process;
//! both run the same server code and the same authorization. [`Informers`] keep what a
//! component watches: one reflector per resource and selector, one [`Object`] per key with the parsed header, the
//! declared [`Index`]es and the one [`Projection`] of its readers. Readers receive keys, never payloads.
//! [`EventRecorder`] writes what users are to see.
//!
//! ```text
//! watch frames -> lines -> ObjectHeader + Projection (once per event) -> store -> handlers, dirty keys
//! in process: stored record with its ObjectHeader -> Projection -> store -> handlers, dirty keys
//! ```
//!
//! Nothing here caches a typed `k8s-openapi` object, polls, or writes a typed value back over stored bytes.

mod answer;
pub mod client;
pub mod discovery;
pub mod edit;
pub mod error;
pub mod events;
mod folded;
mod following;
mod header_store;
pub mod informer;
pub mod json;
mod lines;
mod long_list;
mod namespace_turns;
pub mod object;
pub mod projection;
mod reflector;
pub mod resource;
mod store;
mod typed_changes;
pub mod view_cost;

pub use client::{Client, DeleteOptions, Patch, Precondition, Propagation, Writes, Written};
pub use discovery::DiscoveredResource;
pub use edit::Edit;
pub use error::ClientError;
pub use events::{EventForm, EventRecorder, EventType, NewEvent, ObjectReference, Reporter};
pub use folded::Folded;
pub use header_store::{HeaderChange, HeaderStore};
pub use informer::{Change, DirtyKeys, Informer, Informers, Subscription};
pub use long_list::LongList;
pub use namespace_turns::{Turn, TurnQueue};
pub use object::Object;
pub use projection::{Index, IndexName, ProjectAfter, Projection};
pub use resource::{ApiResource, ListWatch};
pub use typed_changes::{TypedChange, follow};
