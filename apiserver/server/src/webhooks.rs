//! Webhooks of all configurations, by the events of these.

use crate::followed::{self, Compiled};
use apiserver_admission::webhooks::{ConfiguredWebhooks, Webhooks};
use apiserver_egress::CredentialsByHost;
use apiserver_registry::{Registry, RegistryError};
use machinery_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A kind of configurations.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Mutating,
    Validating,
}

struct Configurations {
    webhooks: Arc<Webhooks>,
    kind: Kind,
    credentials: CredentialsByHost,
}

/// The server's credentials for webhooks, by the plugins that call them.
#[derive(Debug, Default)]
pub(crate) struct WebhookCredentials {
    pub(crate) mutating: CredentialsByHost,
    pub(crate) validating: CredentialsByHost,
}

/// Reads all configurations, then follows their changes in tasks of the runtime's scope.
pub(crate) async fn start(
    registry: &Registry,
    webhooks: &Arc<Webhooks>,
    credentials: WebhookCredentials,
    runtime: &Runtime,
) -> Result<(), RegistryError> {
    for (kind, credentials) in [
        (Kind::Mutating, credentials.mutating),
        (Kind::Validating, credentials.validating),
    ] {
        let followed = Configurations {
            webhooks: Arc::clone(webhooks),
            kind,
            credentials,
        };
        followed::start(registry, followed, runtime).await?;
    }
    Ok(())
}

impl Compiled for Configurations {
    type Item = ConfiguredWebhooks;
    type Problem = serde_json::Error;

    fn plural(&self) -> &'static str {
        match self.kind {
            Kind::Mutating => "mutatingwebhookconfigurations",
            Kind::Validating => "validatingwebhookconfigurations",
        }
    }

    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<ConfiguredWebhooks>, serde_json::Error> {
        ConfiguredWebhooks::compile(name, json, &self.credentials).map(Arc::new)
    }

    /// Webhooks are called in the order of their configurations' names.
    fn publish(&self, known: BTreeMap<String, Arc<ConfiguredWebhooks>>) {
        let all = known.values().flat_map(|own| own.0.iter().map(Arc::clone));
        match self.kind {
            Kind::Mutating => self.webhooks.set_mutating(all.collect()),
            Kind::Validating => self.webhooks.set_validating(all.collect()),
        }
    }
}
