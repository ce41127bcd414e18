//! Kinds that CustomResourceDefinitions brought: those stored are served from the start, changes are followed.

use super::Startup;
use apiserver_registry::{RegistryError, custom};
use futures::future::BoxFuture;

/// Serves stored definitions and goes on following them.
pub(super) fn serve(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(custom::start(&facts.core.registry))
}
