//! Fields of a Namespace that controllers read.

use crate::views::Condition;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// The projection of a Namespace.
#[derive(Debug, Clone, Default)]
pub struct NamespaceView {
    /// `spec.finalizers`.
    pub finalizers: Vec<String>,
    /// `status.phase` is `Terminating`.
    pub terminating: bool,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

impl Projection for NamespaceView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let namespace: Namespace = machinery_client::json::from_slice(json)?;
        Ok(Self {
            finalizers: namespace.spec.finalizers,
            terminating: namespace.status.phase == "Terminating",
            conditions: namespace.status.conditions,
        })
    }
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    finalizers: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}
