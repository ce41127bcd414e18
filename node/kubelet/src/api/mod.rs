//! What the kubelet says to and hears from the API server.
//!
//! [`watch`] follows a selection of objects, [`objects`] the ConfigMaps and Secrets that pods here
//! refer to, with [`object_shares`] of them, [`services`] the addresses containers learn from their environment; [`events`] tells what
//! happened. [`deadline`] ends requests that get no answer. Nothing is listed that the Node authorizer would refuse.

pub mod deadline;
pub mod events;
mod object_shares;
pub mod objects;
mod printable;
pub mod services;
pub mod watch;

pub use printable::printable;
