//! Messages, with the field numbers of `api.proto`.

use std::collections::BTreeMap;

/// A ResourceClaim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Claim {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its uid.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Request to prepare claims.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Outcomes of preparing claims.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourcesResponse {
    /// By uid of the claim; a missing one is requested again.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, NodePrepareResourceResponse>,
}

/// Outcome of preparing a claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePrepareResourceResponse {
    /// Devices that the runtime is to give to containers.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// The reason why the claim is not prepared.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    /// Requests of the claim that it belongs to; without any it belongs to all.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// The pool that it is of.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// Names that the Container Device Interface knows it by.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// The share of a device that several claims have at once.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// Request to unprepare claims.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourcesRequest {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Outcomes of that.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourcesResponse {
    /// By uid of the claim.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, NodeUnprepareResourceResponse>,
}

/// Outcome of taking the preparation of a claim back.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeUnprepareResourceResponse {
    /// The reason why it is prepared still.
    #[prost(string, tag = "1")]
    pub error: String,
}
