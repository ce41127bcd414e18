//! Requests of the kubelet to the API server, and its watches.
//!
//! Watches and events are those of `machinery-client`, as every component has them ([`client`]). [`objects`] reads the ConfigMaps
//! and Secrets that pods of this node refer to, bounded by [`object_shares`]; [`services`] has the addresses in the environment
//! of containers; [`events`] records events. [`deadline`] ends requests that get no answer. Nothing is listed that the Node
//! authorizer would refuse.

pub(crate) mod deadline;
pub(crate) mod events;
mod object_shares;
pub(crate) mod objects;
mod printable;
pub(crate) mod services;

use machinery_runtime::Runtime;

pub(crate) use printable::printable;

/// The machinery's client over the kubelet's transport.
pub(crate) fn client(kube: &kube::Client, runtime: &Runtime) -> machinery_client::Client {
    machinery_client::Client::new(kube.clone(), runtime.clone()).with_user_agent("kubelet")
}
