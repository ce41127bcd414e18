//! Times to live of objects that an earlier version stored without one.

use super::Startup;
use apiserver_registry::RegistryError;
use apiserver_registry::store::expiry;
use futures::future::BoxFuture;

/// Begins the sweep; the server serves meanwhile.
pub(super) fn sweep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    expiry::start_sweep(&facts.core.registry);
    Box::pin(async { Ok(()) })
}
