//! Defaults of PriorityClasses.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["preemptionPolicy=\"PreemptLowerPriority\""];
