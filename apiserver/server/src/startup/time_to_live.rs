//! Times to live: of objects that an earlier version stored without one, and their end where a namespace holds too many.

use super::Startup;
use apiserver_registry::RegistryError;
use apiserver_registry::store::{early_expiry, expiry};
use futures::future::BoxFuture;

/// Begins the sweep and the bound; the server serves meanwhile.
pub(super) fn sweep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    let core = &facts.core;
    expiry::start_sweep(&core.registry);
    early_expiry::start(
        &core.registry,
        core.config.events_per_namespace,
        &core.metrics.on_expired_early(),
    );
    Box::pin(async { Ok(()) })
}
