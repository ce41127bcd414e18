//! The API's HTTP: requests become verbs, results become bodies.
//!
//! A request has its [`RequestInfo`] and passed the filters of `server` when it comes to [`Endpoints::handle`]. There
//! its address finds a row of the registry, its method a handler; [`params`] reads the query, [`negotiation`] the form
//! of body and answer, `bodies` the object, the registry does the work, `respond` frames the answer from shared
//! slices. Every error becomes a `Status` in [`status`] and nowhere else.
//!
//! Not here: TLS, authentication, authorization, limits (`server`); rules of kinds and keys (`registry`). Requests that need
//! another part of the server (reviews, tokens, streams to kubelets) go through [`Hooks`].

mod bodies;
pub mod body;
mod discovery;
mod error;
mod extensions;
mod framing;
mod handlers;
mod heavy_frames;
pub mod hooks;
mod indented;
mod list_memory;
mod memory_shares;
pub mod negotiation;
mod openapi;
mod paced_body;
pub mod params;
mod patch_errors;
mod protobuf;
mod read_body;
pub mod request_info;
mod resource_usage;
mod respond;
mod shared_document;
pub mod status;
mod table;
mod unread_memory;
mod version;
mod waiting_answers;
pub mod yaml;

pub use apiserver_registry::UserClass;
pub use bodies::MAX_BODY_BYTES;
pub use body::{Body, BodyError, FrameSource};
pub use error::ApiError;
pub use extensions::{
    ExtensionGroups, ExtensionKind, ExtensionResource, ExtensionSubresource, ExtensionVersion, OpenApiV2,
    Priority, null_as_default,
};
pub use handlers::{Endpoints, is_routed};
pub use hooks::{
    Component, ConnectRequest, Connections, Hooks, Observers, Parts, Reviews, Rights, Tokens, WatchEvents,
};
pub use list_memory::ListMemory;
pub use memory_shares::{HeldMemory, MemoryShares};
pub use paced_body::{ReadingPace, paced};
pub use request_info::{Query, RequestInfo, RequestInfoError};
pub use resource_usage::{NodeUsage, PodUsage, ResourceUsage, Usage};
pub use unread_memory::{HeldUnread, UnreadMemory};
pub use version::VersionInfo;
