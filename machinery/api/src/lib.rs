//! The generated table of built-in kinds and what belongs to k8s-openapi's types.
