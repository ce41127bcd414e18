//! Joins the admission plugins to the registry.
//!
//! A write is changed, then checked: [`configured_plugins`] makes the chain of plugins by the server's configuration;
//! rules that ask an authorizer about what the object says stand around it: [`grants`] of roles and bindings,
//! [`signers`](crate::signers) of certificates, [`parameters`](crate::parameters) of policies. [`refusals`] makes errors of the
//! API of what they say.

pub(crate) mod configured_plugins;
mod grants;
mod image_reviews;
mod refusals;

use crate::account_weight;
use crate::admission_configuration::AdmissionConfigurationError;
use crate::admission_host::RequestHost;
use crate::config::ServerConfig;
use crate::metrics::{AdmissionMetrics, Metrics, PodSecurityMetrics};
use crate::parameters::Parameters;
use crate::remarks::RequestRemarks;
use crate::signers;
use crate::unenforced::Unenforced;
use crate::webhook_memory::WebhookMemory;
use apiserver_admission::plugins::NamespaceProvisioner;
use apiserver_admission::plugins::resource_quota::UsageWriter;
use apiserver_admission::policies::Policies;
use apiserver_admission::webhooks::Webhooks;
use apiserver_admission::{AdmissionChain, Request};
use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::authz::rbac::RbacAuthorizer;
use apiserver_egress::Dialer;
use apiserver_registry::{Admission, Attributes, Registry, RegistryError, RequestContext};
use async_trait::async_trait;
use grants::Grants;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use refusals::refused;
use std::sync::Arc;

/// Admission of this server.
pub(crate) struct ServerAdmission {
    plugins: AdmissionChain,
    grants: Grants,
    authorizers: AuthorizerChain,
    parameters: Parameters,
    unenforced: Unenforced,
    pod_security: Arc<PodSecurityMetrics>,
    waiting: WebhookMemory,
}

/// Parts of the server that plugins ask.
pub(crate) struct Sources<'a> {
    pub(crate) reader: &'a Arc<dyn ObjectReader>,
    pub(crate) rbac: &'a Arc<RbacAuthorizer>,
    pub(crate) authorizers: &'a AuthorizerChain,
    pub(crate) registry: &'a Registry,
    pub(crate) dialer: &'a Dialer,
    pub(crate) webhooks: &'a Arc<Webhooks>,
    pub(crate) policies: &'a Arc<Policies>,
    pub(crate) provisioner: &'a Arc<dyn NamespaceProvisioner>,
}

impl ServerAdmission {
    pub(crate) fn new(
        sources: &Sources<'_>,
        runtime: &Runtime,
        usage: Arc<dyn UsageWriter>,
        config: &ServerConfig,
    ) -> Result<Self, AdmissionConfigurationError> {
        let (plugins, pod_security) = configured_plugins::chain(sources, runtime, usage, config)?;
        let authorizers = sources.authorizers.clone();
        Ok(Self {
            plugins,
            grants: Grants {
                rbac: Arc::clone(sources.rbac),
                authorizers: authorizers.clone(),
            },
            parameters: Parameters {
                authorizers: authorizers.clone(),
                reader: Arc::clone(sources.reader),
                registry: sources.registry.clone(),
            },
            unenforced: Unenforced {
                allowed: config.allow_unenforced,
            },
            authorizers,
            pod_security,
            waiting: WebhookMemory::new(config),
        })
    }

    /// Counts the plugins' times.
    pub(crate) fn measured(
        mut self,
        metrics: &Metrics,
        runtime: &Runtime,
    ) -> Result<Self, prometheus::Error> {
        let observer = AdmissionMetrics::new(metrics.families(), runtime.clone(), self.plugins.len())?;
        self.plugins.observe(observer);
        self.pod_security.register(metrics.families())?;
        Ok(self)
    }

    fn host<'a>(&'a self, ctx: &'a RequestContext, attributes: &'a Attributes) -> RequestHost<'a> {
        RequestHost {
            ctx,
            attributes,
            registry: &self.parameters.registry,
            authorizers: &self.authorizers,
            waiting: &self.waiting,
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
impl Admission for ServerAdmission {
    async fn mutate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        signers::check_node(ctx, attributes, object)?;
        account_weight::weigh(ctx, &self.parameters.registry, attributes, object).await?;
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let asked = self
            .plugins
            .mutate(&request(&remarks, attributes, &host), object, old)
            .await;
        asked.map_err(|error| refused(error, attributes, Some(object)))?;
        // Before validation, as upstream: a grant is refused whatever else is wrong with it.
        self.grants.check(ctx, attributes, object, old).await
    }

    async fn validate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        if let Some(object) = object {
            self.grants.check(ctx, attributes, object, old).await?;
            signers::check(&self.authorizers, ctx, attributes, object, old).await?;
            self.parameters.check(ctx, attributes, object, old).await?;
            self.unenforced.check(ctx, attributes, object, old)?;
        }
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let asked = self
            .plugins
            .validate(&request(&remarks, attributes, &host), object, old)
            .await;
        asked.map_err(|error| refused(error, attributes, object))
    }
}
