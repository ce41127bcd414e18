//! The registry's door: admission of one request, by plugins and rules.

use crate::refusals::refused;
use crate::request_host::{RequestHost, WaitingMemory};
use crate::request_remarks::RequestRemarks;
use crate::rules::{RuleParts, Rules};
use crate::{AdmissionChain, Request};
use apiserver_auth::authz::AuthorizerChain;
use apiserver_registry::{Admission, Attributes, Registry, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;
use std::fmt;
use std::sync::Arc;

/// Admission of a server's requests.
pub struct RequestAdmission {
    plugins: AdmissionChain,
    rules: Rules,
    registry: Registry,
    authorizers: AuthorizerChain,
    waiting: Arc<dyn WaitingMemory>,
}

impl fmt::Debug for RequestAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestAdmission").field(&self.plugins).finish()
    }
}

impl RequestAdmission {
    pub fn new(plugins: AdmissionChain, parts: RuleParts, waiting: Arc<dyn WaitingMemory>) -> Self {
        Self {
            plugins,
            registry: parts.registry.clone(),
            authorizers: parts.authorizers.clone(),
            rules: Rules::new(parts),
            waiting,
        }
    }

    fn host<'a>(&'a self, ctx: &'a RequestContext, attributes: &'a Attributes) -> RequestHost<'a> {
        RequestHost {
            ctx,
            attributes,
            registry: &self.registry,
            authorizers: &self.authorizers,
            waiting: &*self.waiting,
        }
    }
}

fn request<'a>(
    remarks: &'a RequestRemarks<'a>,
    attributes: &'a Attributes,
    host: &'a RequestHost<'a>,
) -> Request<'a> {
    Request {
        user: &remarks.0.user,
        operation: attributes.operation,
        group: &attributes.resource.group,
        kind: &attributes.kind.kind,
        resource: &attributes.resource.resource,
        subresource: &attributes.subresource,
        namespace: &attributes.namespace,
        name: &attributes.name,
        dry_run: attributes.dry_run,
        remarks,
        host: Some(host),
        reinvocation: None,
    }
}

#[async_trait]
impl Admission for RequestAdmission {
    async fn mutate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let request = request(&remarks, attributes, &host);
        let changed = self.plugins.mutate(&request, object, old).await;
        changed.map_err(|error| refused(error, attributes, Some(object)))?;
        self.rules.check_changed(ctx, attributes, object, old).await
    }

    async fn validate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        if let Some(object) = object {
            self.rules.check(ctx, attributes, object, old).await?;
        }
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let request = request(&remarks, attributes, &host);
        let checked = self.plugins.validate(&request, object, old).await;
        checked.map_err(|error| refused(error, attributes, object))
    }
}
