//! Defaults of ResourceClaimTemplates.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.spec.devices.requests[].exactly.allocationMode=\"ExactCount\"",
    "spec.spec.devices.requests[].exactly.tolerations[].operator=\"Equal\"",
    "spec.spec.devices.requests[].firstAvailable[].allocationMode=\"ExactCount\"",
    "spec.spec.devices.requests[].firstAvailable[].tolerations[].operator=\"Equal\"",
];
