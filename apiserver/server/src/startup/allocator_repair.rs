//! Addresses and node ports of services: what is wrong is repaired, from the start on.

use super::Startup;
use apiserver_registry::RegistryError;
use apiserver_registry::kinds::core::service::repair;
use futures::future::BoxFuture;

/// Repairs once and goes on.
pub(super) fn start(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(repair::start(&facts.core.registry))
}
