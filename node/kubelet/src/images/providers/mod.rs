//! Credentials of registries by plugins: programs that the node's owner has installed (KEP 2133, upstream's `pkg/credentialprovider/plugin`).
//!
//! [`config`] reads which plugins there are and for which images. A pull asks each plugin that [`provider`] finds to match, unless its last
//! answer is still good; [`plugin`] runs the program and reads what it answers. Those with `tokenAttributes` get a token of the pod's service
//! account, and annotations of it ([`account`]). Credentials of plugins count after the pod's own pull secrets.
//!
//! Never: an answer in the log, or a plugin's failure that ends the pull: it goes on without its credentials.

mod account;
mod answers;
pub(crate) mod config;
mod plugin;
mod provider;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Family};
use node_volume::ObjectSource;

use super::credentials::{self, Credential};
use crate::pods::{name, namespace};
use config::CredentialProvidersConfig;
use provider::Provider;

const ERRORS: Family = Family::new(
    "kubelet_credential_provider_plugin_errors_total",
    "[ALPHA] Number of errors from credential provider plugin",
    &["plugin_name"],
);
const DURATION: Family = Family::new(
    "kubelet_credential_provider_plugin_duration",
    "[ALPHA] Duration of execution in seconds for credential provider plugin",
    &["plugin_name"],
)
.listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
const CONFIG: Family = Family::new(
    "kubelet_credential_provider_config_info",
    "[ALPHA] Information about the last applied credential provider configuration with hash as label",
    &["hash"],
);

/// Requests the families of a node that has plugins.
fn begin_metrics(metrics: &ComponentMetrics, hash: &str) {
    let _ = (metrics.counters(&ERRORS), metrics.histograms(&DURATION));
    metrics.gauges(&CONFIG).of(&[hash]).set(1.0);
}

/// The plugins of a node, in the order of its configuration.
#[derive(Debug, Clone, Default)]
pub(super) struct CredentialProviders(Arc<[Provider]>);

impl CredentialProviders {
    /// Those of a configuration that was read; none without one.
    pub(super) fn new(
        runtime: &Runtime,
        client: &Client,
        config: Option<&CredentialProvidersConfig>,
    ) -> Self {
        let Some(config) = config else {
            return Self::default();
        };
        begin_metrics(runtime.metrics(), &config.hash);
        let providers = config.providers.iter();
        let providers = providers.map(|own| Provider::new(runtime, client, config, own.clone()));
        Self(providers.collect())
    }

    /// Credentials for a repository and a pod, as upstream's keyring orders them.
    pub(super) async fn credentials(
        &self,
        pod: &Pod,
        repository: &str,
        objects: &dyn ObjectSource,
    ) -> Vec<Credential> {
        let mut all = Vec::new();
        for provider in self.0.iter() {
            match provider.provide(pod, repository, objects).await {
                Ok(found) => all.extend(found),
                Err(error) => {
                    let pod = format!("{}/{}", namespace(pod), name(pod));
                    let provider = provider.name();
                    tracing::error!(provider, image = repository, pod, %error, "failed to provide credentials for image");
                }
            }
        }
        credentials::ordered(all, repository)
    }
}
