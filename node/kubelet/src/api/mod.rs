//! Requests of the kubelet to the API server, and its watches.
//!
//! [`watch`] follows a selection of objects, [`objects`] reads the ConfigMaps and Secrets that pods of this node
//! refer to, bounded by [`object_shares`]; [`services`] has the addresses in the environment of containers; [`events`] records
//! events. [`deadline`] ends requests that get no answer. Nothing is listed that the Node authorizer would refuse.

pub(crate) mod deadline;
pub(crate) mod events;
mod object_shares;
pub(crate) mod objects;
mod printable;
pub(crate) mod services;
pub(crate) mod watch;

pub(crate) use printable::printable;
