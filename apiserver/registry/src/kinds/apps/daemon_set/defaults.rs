//! Defaults of DaemonSets.

use crate::kinds::apps::defaults::rolling;
use machinery_schema::{Tree, Value};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.revisionHistoryLimit=10"];

/// A strategy with numbers.
pub(super) fn set(object: &mut Tree) {
    let numbers = [("maxUnavailable", Value::Int(1)), ("maxSurge", Value::Int(0))];
    rolling(object, "updateStrategy", &numbers);
    // Upstream's internal type has numbers where there is a rolling update, which another strategy may have as well.
    object.with(&["spec", "updateStrategy"], |mut strategy| {
        if let Some(mut rolling) = strategy.field("rollingUpdate").filter(|own| !own.is_null()) {
            for name in ["maxUnavailable", "maxSurge"] {
                rolling.default(name, Value::Int(0));
            }
        }
    });
}
