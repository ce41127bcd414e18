//! PodCertificateRequest: a node asks a signer for the certificate of one of its pods.
//!
//! [`validation`] is what may be asked, [`proof`] that who asks has the key, [`outcome`] what a signer may answer.
pub mod outcome;
mod proof;
pub mod validation;
