//! A request under way, as webhooks and policies see it beyond its names: versions of its kind, its warnings and its audit event.

use crate::{AdmissionError, Equivalent, Held, Host};
use apiserver_auth::authz::attributes::{AttributesTarget, ResourceTarget};
use apiserver_auth::authz::{Attributes as AuthzAttributes, AuthorizerChain, Busy};
use apiserver_registry::latency::LatencyPart;
use apiserver_registry::{Attributes, Registry, RequestContext, ResourceRow, managed_fields};
use async_trait::async_trait;
use machinery_cel::{Check, Decision, Interrupt};
use machinery_meta::{GroupVersionKind, GroupVersionResource, UserInfo};
use machinery_schema::{Tree, apply_defaults};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Work on objects and patches from this size on is heavy.
const LARGE_BYTES: usize = apiserver_registry::context::LARGE_OBJECT_BYTES;

/// Memory of requests that wait for other servers.
pub trait WaitingMemory: Send + Sync {
    /// Counts bytes that a request holds for an object in this namespace; `None` where its owner holds too much already.
    fn hold(&self, ctx: &RequestContext, namespace: &str, bytes: usize) -> Option<Held>;
}

/// See the module.
pub(crate) struct RequestHost<'a> {
    pub(crate) ctx: &'a RequestContext,
    pub(crate) attributes: &'a Attributes,
    pub(crate) registry: &'a Registry,
    pub(crate) authorizers: &'a AuthorizerChain,
    pub(crate) waiting: &'a dyn WaitingMemory,
}

impl fmt::Debug for RequestHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHost").finish_non_exhaustive()
    }
}

impl RequestHost<'_> {
    fn row(&self, of: &GroupVersionResource) -> Option<Arc<ResourceRow>> {
        let rows = self.registry.rows();
        rows.get(&of.group, &of.version, &of.resource).map(Arc::clone)
    }

    /// The kind of requests for a row: a subresource may have its own.
    fn kind_of(&self, row: &ResourceRow) -> GroupVersionKind {
        let part = row.subresource(&self.attributes.subresource);
        part.map_or_else(|| row.gvk.clone(), |part| part.gvk.clone())
    }
}

#[async_trait]
impl Host for RequestHost<'_> {
    fn kind(&self) -> &GroupVersionKind {
        &self.attributes.kind
    }

    fn is_custom(&self) -> bool {
        let row = self.row(&self.attributes.resource);
        row.is_some_and(|row| row.custom)
    }

    fn resource(&self) -> &GroupVersionResource {
        &self.attributes.resource
    }

    fn options(&self) -> Option<String> {
        self.attributes.options.to_json()
    }

    fn resources_of_kind(&self, group: &str, version: &str, kind: &str) -> Vec<(GroupVersionResource, bool)> {
        let rows = self.registry.served();
        let found = rows.all().filter(|row| {
            let own = &row.gvk;
            (&*own.group, &*own.version, &*own.kind) == (group, version, kind)
        });
        found
            .map(|row| (row.group_version().resource(&row.plural), row.namespaced))
            .collect()
    }

    fn equivalents(&self) -> Vec<Equivalent> {
        let rows = self.registry.rows();
        let Some(row) = self.row(&self.attributes.resource) else {
            return Vec::new();
        };
        let others = rows.equivalents(&row, &self.attributes.subresource);
        others
            .map(|other| Equivalent {
                resource: other.group_version().resource(&other.plural),
                kind: self.kind_of(other),
            })
            .collect()
    }

    async fn convert(
        &self,
        object: &Tree,
        from: &GroupVersionResource,
        to: &Equivalent,
    ) -> Result<Tree, AdmissionError> {
        let unknown = |of: &GroupVersionResource| {
            AdmissionError::Internal(format!(
                "unable to convert to {}/{}, Resource={}: unknown kind",
                of.group, of.version, of.resource
            ))
        };
        let row = self.row(&to.resource).ok_or_else(|| unknown(&to.resource))?;
        let store = self.registry.store(&from.group, &from.version, &from.resource);
        let store = store.ok_or_else(|| unknown(from))?;
        if to.kind != row.gvk {
            return Err(unknown(&to.resource));
        }
        store
            .convert(object, &row)
            .await
            .map_err(AdmissionError::of_registry)
    }

    async fn authorize(
        &self,
        service_account: Option<(&str, &str)>,
        check: &Check,
        verb: &str,
    ) -> Result<Decision, AdmissionError> {
        let account = service_account.map(|(namespace, name)| UserInfo::service_account(namespace, name));
        let target = match &check.path {
            Some(path) => AttributesTarget::Path(path),
            None => AttributesTarget::Resource(ResourceTarget {
                group: &check.group,
                version: "*",
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                ..ResourceTarget::default()
            }),
        };
        let question = AuthzAttributes {
            asker: Some(&self.ctx.user.name),
            user: account.as_ref().unwrap_or(&self.ctx.user),
            verb,
            target,
        };
        let decision = self.authorizers.authorize(&question).await;
        let decision = decision.map_err(|Busy| AdmissionError::Busy)?;
        Ok(Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason().to_string(),
            error: decision.error().map(str::to_owned),
        })
    }

    fn set_defaults(&self, object: &mut Tree, of: &GroupVersionResource) {
        apply_defaults(object);
        // A subresource's own kind has those of its schema.
        if let Some(row) = self.row(of).filter(|row| self.kind_of(row) == row.gvk) {
            row.strategy.defaults(object);
        }
    }

    fn field_owners_problem(&self, object: &Tree) -> Option<String> {
        managed_fields::unreadable(object)
    }

    fn warn(&self, warning: String) {
        self.ctx.warnings.add(warning);
    }

    fn annotate(&self, key: String, value: String) {
        self.ctx.audit.add(key, value);
    }

    fn audits_bodies(&self) -> bool {
        self.ctx.recorder.as_ref().is_some_and(|own| own.wants_patches())
    }

    fn waited(&self, mutating: bool, took: Duration) {
        let part = match mutating {
            true => LatencyPart::MutatingWebhook,
            false => LatencyPart::ValidatingWebhook,
        };
        self.ctx.latency.add(part, took);
    }

    fn time_left(&self) -> Option<Duration> {
        let now = self.ctx.runtime.monotonic();
        self.ctx.deadline.map(|deadline| deadline.saturating_sub(now))
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(self.ctx.interrupt())
    }

    fn hold(&self, bytes: usize) -> Result<Held, AdmissionError> {
        let held = self.waiting.hold(self.ctx, &self.attributes.namespace, bytes);
        held.ok_or(AdmissionError::Busy)
    }

    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError> {
        let turn = self.ctx.heavy_from(bytes, LARGE_BYTES).await;
        turn.map_err(AdmissionError::of_registry)
    }
}
