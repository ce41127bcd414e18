//! Everything the rest of the server needs to know about a kind, in one served version.
//!
//! Routes, discovery, OpenAPI, table output and field selectors all read this. If something about a kind is
//! needed elsewhere it becomes a field here rather than a second list.

use crate::engine::conversion::Conversion;
use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::strategy::Strategy;
use crate::engine::verbs::Verbs;
use crate::engine::version_webhook::VersionWebhook;
use crate::shared::columns::Columns;
use base64::Engine;
use machinery_meta::{GroupKind, GroupResource, GroupVersion, GroupVersionKind};
use machinery_runtime::CancellationToken;
use machinery_schema::{Schema, TypeId};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A kind as one version serves it.
#[derive(Debug, Clone)]
pub struct ResourceRow {
    pub gvk: GroupVersionKind,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub list_kind: String,
    pub namespaced: bool,
    pub verbs: Verbs,
    pub subresources: Vec<Subresource>,
    /// The type of this version.
    pub schema: Arc<Schema>,
    pub ty: TypeId,
    /// A custom resource: no protobuf, no strategic merge patch, type meta on list items.
    pub custom: bool,
    /// The built-in kind that this is a version of; none of a custom resource.
    pub built_in: Option<&'static Kind>,
    pub stored: StoredForm,
    pub columns: Columns,
    pub selectable: Arc<[Selectable]>,
    pub strategy: Arc<dyn Strategy>,
    /// Objects are stored; without it the kind answers creates and stores nothing (reviews).
    pub has_store: bool,
    /// A warning every answer carries (deprecated versions).
    pub deprecation_warning: Option<String>,
    /// Upstream's hash of the version it is stored in, for discovery.
    pub storage_version_hash: String,
    pub openapi_schema: Option<OpenApiSchema>,
    /// Cancelled when its definition is deleted: no object is created from then on.
    pub terminating: CancellationToken,
    /// Cancelled when other rows replace this one, which ends its watches.
    pub superseded: CancellationToken,
}

/// A custom kind's `openAPIV3Schema`, for its OpenAPI document.
#[derive(Debug, Clone)]
pub struct OpenApiSchema {
    json: String,
    digest: [u8; 32],
}

impl OpenApiSchema {
    pub fn new(json: String) -> Self {
        let digest = Sha256::digest(&json).into();
        Self { json, digest }
    }

    pub fn json(&self) -> &str {
        &self.json
    }

    /// Changes with the schema.
    pub fn digest(&self) -> &[u8] {
        &self.digest
    }
}

/// The form and the place in which objects of the kind are stored.
#[derive(Debug, Clone)]
pub struct StoredForm {
    /// With a slash at its end: `/registry/pods/`.
    pub prefix: String,
    pub gvk: GroupVersionKind,
    pub schema: Arc<Schema>,
    pub ty: TypeId,
    /// Of all that a record is made by: the schema, and the fields that its header carries.
    pub fingerprint: u64,
    /// Between the stored and this version; absent where they are the same but for `apiVersion`.
    pub conversion: Option<Arc<dyn Conversion>>,
    /// The webhook that converts objects of other versions; the form is then this row's own, and the webhook has the one that is
    /// stored.
    pub webhook: Option<Arc<VersionWebhook>>,
}

/// The fingerprint of records that a schema and these fields make.
pub(crate) fn record_fingerprint(schema: &Schema, selectable: &[Selectable]) -> u64 {
    let mut digest = Sha256::new_with_prefix(schema.fingerprint().to_le_bytes());
    for field in selectable {
        digest.update(&field.label);
        digest.update([0]);
    }
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = digest.finalize().into();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// A part of an object under its own address.
#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: String,
    /// The kind bodies have here (`Scale` of autoscaling for `scale`).
    pub gvk: GroupVersionKind,
    pub verbs: Verbs,
    pub role: SubresourceRole,
}

/// The action of a subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubresourceRole {
    /// The object's status, bodies are the whole object.
    Status,
    /// autoscaling/v1 `Scale` over these paths.
    Scale(ScalePaths),
    /// Bodies are the whole object and the strategy decides (`finalize`, `approval` …).
    Whole(&'static str),
    /// Binds a pod to a node.
    Binding,
    /// Deletes a pod if budgets allow.
    Eviction,
    /// Makes a service account token; filled by the server.
    Token,
    /// A stream or a proxied request; filled by the server.
    Connect,
    /// A stream that is read; filled by the server.
    Log,
}

/// Paths of the members that `scale` shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    /// Of a custom resource: a missing value is an error.
    pub custom: bool,
    /// A label selector object or, for custom resources, a string.
    pub selector: Option<Vec<String>>,
}

impl ResourceRow {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.gvk.group, &self.plural)
    }

    pub fn group_kind(&self) -> GroupKind {
        self.gvk.group_kind()
    }

    pub fn group_version(&self) -> GroupVersion {
        self.gvk.group_version()
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresources
            .iter()
            .any(|sub| sub.role == SubresourceRole::Status)
    }

    /// The version served is the version stored.
    pub fn is_stored_form(&self) -> bool {
        if let Some(webhook) = &self.stored.webhook {
            return webhook.storage.gvk == self.gvk;
        }
        self.stored.conversion.is_none()
            && self.gvk.version == self.stored.gvk.version
            && self.gvk.group == self.stored.gvk.group
    }

    /// The key of an object in storage.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &self.stored.prefix;
        if self.namespaced {
            format!("{prefix}{namespace}/{name}")
        } else {
            format!("{prefix}{name}")
        }
    }

    /// The prefix of all objects, or of one namespace's.
    pub fn collection(&self, namespace: &str) -> String {
        let prefix = &self.stored.prefix;
        if self.namespaced && !namespace.is_empty() {
            format!("{prefix}{namespace}/")
        } else {
            prefix.clone()
        }
    }
}

/// Upstream's hash of the version a resource is stored in.
pub fn storage_version_hash(gvk: &GroupVersionKind) -> String {
    let digest = Sha256::digest(format!("{}/{}/{}", gvk.group, gvk.version, gvk.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}
