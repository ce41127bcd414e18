//! The kinds of the certificates group that have rules of their own.

pub mod cluster_trust_bundle;
pub mod pod_certificate_request;
