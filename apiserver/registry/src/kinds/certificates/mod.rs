//! Kinds of certificates.k8s.io: what is requested, what is signed, whom to trust.

pub mod certificate_signing_request;
pub mod cluster_trust_bundle;
pub mod pod_certificate_request;
mod public_key;
mod x509;

pub use x509::{common_name, organizations};
