//! Defaults of ResourceClaims.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.devices.requests[].exactly.allocationMode=\"ExactCount\"",
    "spec.devices.requests[].exactly.tolerations[].operator=\"Equal\"",
    "spec.devices.requests[].firstAvailable[].allocationMode=\"ExactCount\"",
    "spec.devices.requests[].firstAvailable[].tolerations[].operator=\"Equal\"",
    "status.allocation.devices.results[].tolerations[].operator=\"Equal\"",
];
