//! Assembles admission by the server's configuration: [`configured_plugins`] and what they are measured by.

pub(crate) mod configured_plugins;
mod image_reviews;

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::metrics::{AdmissionMetrics, Metrics};
use crate::webhook_memory::WebhookMemory;
use apiserver_admission::plugins::NamespaceProvisioner;
use apiserver_admission::plugins::resource_quota::UsageWriter;
use apiserver_admission::policies::Policies;
use apiserver_admission::webhooks::Webhooks;
use apiserver_admission::{RequestAdmission, RuleParts};
use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::authz::rbac::RbacAuthorizer;
use apiserver_egress::Dialer;
use apiserver_registry::Registry;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use std::sync::Arc;

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

/// Admission of this server.
pub(crate) fn assemble(
    sources: &Sources<'_>,
    (runtime, metrics): (&Runtime, &Metrics),
    usage: Arc<dyn UsageWriter>,
    config: &ServerConfig,
) -> Result<RequestAdmission, ServerError> {
    let (mut plugins, pod_security) = configured_plugins::chain(sources, runtime, usage, config)?;
    let observer = AdmissionMetrics::new(metrics.families(), runtime.clone(), plugins.len())?;
    plugins.observe(observer);
    pod_security.register(metrics.families())?;
    let rules = RuleParts {
        rbac: Arc::clone(sources.rbac),
        authorizers: sources.authorizers.clone(),
        reader: Arc::clone(sources.reader),
        registry: sources.registry.clone(),
        allow_unenforced: config.allow_unenforced,
    };
    let waiting = Arc::new(WebhookMemory::new(config));
    Ok(RequestAdmission::new(plugins, rules, waiting))
}
