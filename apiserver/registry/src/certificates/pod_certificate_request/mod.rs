//! PodCertificateRequest: a node asks a signer for the certificate of one of its pods.
pub mod validation;
