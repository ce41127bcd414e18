//! Components of the agent that were begun again after a panic, told as events of the node.

use crate::api::events::EventKind;
use crate::managers::ManagerContext;

const REASON: &str = "ComponentRestarted";

/// Tells of each failure, for ever. The panic's message goes to the log only.
pub async fn tell(context: ManagerContext) {
    let node = context.registered().await;
    loop {
        let name = context.runtime.components().next_failure().await;
        let message = format!("Component {name} of the node agent failed and begins again; its log says why");
        let events = &context.workers.events;
        events.node(&node, EventKind::Warning, REASON, message);
    }
}
