//! Conditions in a status: what is so, since when and why.

use machinery_schema::{Tree, Value};

/// The content of a condition.
#[derive(Debug, Clone, Copy)]
pub struct Condition<'a> {
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Sets a condition of an object; its time moves only when its status does.
pub fn set_condition(object: &mut Tree, now: &str, said: Condition<'_>) {
    object.with(&["status"], |mut own| {
        let mut conditions = own.entry("conditions");
        let at = conditions
            .as_ref()
            .items()
            .position(|condition| condition.str("type") == said.kind);
        let index = at.unwrap_or_else(|| conditions.as_ref().items().len());
        if at.is_none() {
            conditions.push(Value::EmptyMap);
        }
        let Some(mut condition) = conditions.item(index) else {
            return;
        };
        let moved = condition.as_ref().str("status") != said.status;
        condition.set("type", said.kind);
        condition.set("status", said.status);
        if moved {
            condition.set("lastTransitionTime", now);
        }
        condition.set("reason", said.reason);
        condition.set("message", said.message);
    });
}
