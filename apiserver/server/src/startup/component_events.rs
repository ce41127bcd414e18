//! Components of the server that were begun again, recorded as events of the service `kubernetes` in `default`.
//!
//! An event names the component; its panic's message may hold parts of a request, and goes to the log only.

use super::Startup;
use super::kubernetes_service::SERVICE;
use apiserver_registry::{EventRecorder, RegistryError};
use futures::future::BoxFuture;

const COMPONENT: &str = "knarr-server";
const REASON: &str = "ComponentRestarted";

/// Records from now on, in a loop of its own.
pub(super) fn record(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let own = facts.clone();
        let recording = move || follow(own.clone());
        facts
            .core
            .runtime
            .supervise("component events", recording)
            .detach();
        Ok(())
    })
}

async fn follow(facts: Startup) -> Result<(), String> {
    let recorder = EventRecorder::new(&facts.core.registry, facts.door(), COMPONENT, "Restart");
    let recorder = recorder.map_err(|error| error.to_string())?;
    loop {
        let name = facts.core.runtime.components().next_failure().await;
        match facts.read(SERVICE).await {
            Ok(Some(service)) => {
                let message = format!("Component {name} failed and begins again; see the log of the server");
                recorder.warn(&service, REASON, &message).await;
            }
            Ok(None) => tracing::debug!(name, "no object to record a component failure on"),
            Err(error) => tracing::warn!(%error, name, "the event of a failed component was not recorded"),
        }
    }
}
