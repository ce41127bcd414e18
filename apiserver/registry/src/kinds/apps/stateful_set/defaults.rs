//! Defaults of StatefulSets.

use crate::kinds::apps::defaults::rolling;
use machinery_schema::{Tree, Value};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.persistentVolumeClaimRetentionPolicy={}",
    "spec.persistentVolumeClaimRetentionPolicy.whenDeleted=\"Retain\"",
    "spec.persistentVolumeClaimRetentionPolicy.whenScaled=\"Retain\"",
    "spec.podManagementPolicy=\"OrderedReady\"",
    "spec.replicas=1",
    "spec.revisionHistoryLimit=10",
    "spec.volumeClaimTemplates[].apiVersion=\"v1\"",
    "spec.volumeClaimTemplates[].kind=\"PersistentVolumeClaim\"",
    "spec.volumeClaimTemplates[].spec.volumeMode=\"Filesystem\"",
    "spec.volumeClaimTemplates[].status.phase=\"Pending\"",
];

/// A strategy with numbers.
pub(super) fn set(object: &mut Tree) {
    let numbers = [("partition", Value::Int(0)), ("maxUnavailable", Value::Int(1))];
    rolling(object, "updateStrategy", &numbers);
}
