//! ClusterTrustBundle: trust anchors, of a signer or of nobody in particular.
pub mod validation;
