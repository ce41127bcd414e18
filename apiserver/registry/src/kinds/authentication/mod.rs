//! Kinds of authentication.k8s.io, which are answered and not stored.

pub mod self_subject_review;
pub mod token_review;
