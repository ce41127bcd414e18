//! Events of the node for components of the agent that restarted after a panic.

use crate::api::events::EventType;
use crate::managers::ManagerContext;

const REASON: &str = "ComponentRestarted";

/// Records an event for each failure, for ever. The panic's message goes to the log only.
pub(crate) async fn record_failures(context: ManagerContext) {
    let node = context.registered().await;
    loop {
        let name = context.runtime.components().next_failure().await;
        let message = format!(
            "Component {name} of the node agent failed and was restarted; the log of the agent has the cause"
        );
        let events = &context.workers.events;
        events.node(&node, EventType::Warning, REASON, message);
    }
}
