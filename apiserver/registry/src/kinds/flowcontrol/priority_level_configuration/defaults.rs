//! Defaults of PriorityLevelConfigurations.

use machinery_schema::{Ref, Tree};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.exempt.lendablePercent=0",
    "spec.exempt.nominalConcurrencyShares=0",
    "spec.limited.lendablePercent=0",
    "spec.limited.limitResponse.queuing.handSize=8",
    "spec.limited.limitResponse.queuing.queueLengthLimit=50",
    "spec.limited.limitResponse.queuing.queues=64",
    "spec.limited.nominalConcurrencyShares=30",
];

/// Zero is no number of queues, and stands for the usual one.
pub(super) fn set(object: &mut Tree) {
    object.with(&["spec", "limited", "limitResponse", "queuing"], |mut queuing| {
        for (name, usual) in [("handSize", 8), ("queueLengthLimit", 50), ("queues", 64)] {
            if queuing.as_ref().get(name).and_then(Ref::as_i64) == Some(0) {
                queuing.set(name, usual);
            }
        }
    });
}
