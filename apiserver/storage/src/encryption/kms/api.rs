//! Messages of `v2.KeyManagementService` (`k8s.io/kms/apis/v2/api.proto`), and the stored form of an encrypted object
//! (`kmsv2/v2/api.proto`). None of them shows key material in its `Debug`.

use std::collections::BTreeMap;
use std::fmt;

pub(super) const STATUS: &str = "/v2.KeyManagementService/Status";
pub(super) const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
pub(super) const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

/// Asks a plugin how it is.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct StatusResponse {
    /// `v2`, or `v2beta1`.
    #[prost(string, tag = "1")]
    pub(super) version: String,
    /// `ok`; anything else is what is wrong.
    #[prost(string, tag = "2")]
    pub(super) healthz: String,
    /// The key that the plugin writes with now.
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    /// Identifies the request in logs.
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

/// A stored value behind its prefix.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    /// The key of the data, or the seed of it, as the plugin encrypted it.
    #[prost(bytes = "vec", tag = "3")]
    pub(super) encrypted_dek_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
    /// 0 for a key, 1 for a seed.
    #[prost(int32, tag = "5")]
    pub(super) encrypted_dek_source_type: i32,
}

impl fmt::Debug for DecryptResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecryptResponse").finish_non_exhaustive()
    }
}

impl fmt::Debug for EncryptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptRequest")
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}
