//! Defaults that several kinds of the group have.

use machinery_schema::{Tree, Value};

/// The strategy is a rolling update, with its numbers.
pub(super) fn rolling(object: &mut Tree, member: &str, numbers: &[(&str, Value<'_>)]) {
    object.with(&["spec"], |mut spec| {
        let mut strategy = spec.entry(member);
        if strategy.is_null() {
            strategy.set_value(Value::EmptyMap);
        }
        strategy.default("type", "RollingUpdate");
        if strategy.as_ref().str("type") == "RollingUpdate" {
            let mut rolling = strategy.entry("rollingUpdate");
            if rolling.is_null() {
                rolling.set_value(Value::EmptyMap);
            }
            for (name, value) in numbers {
                rolling.default(name, *value);
            }
        }
    });
}
