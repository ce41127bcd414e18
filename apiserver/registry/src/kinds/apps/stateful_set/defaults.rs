//! Defaults of StatefulSets.

use crate::kinds::apps::defaults::rolling;
use crate::shared::validation::present;
use machinery_schema::{Tree, Value};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.persistentVolumeClaimRetentionPolicy={}",
    "spec.persistentVolumeClaimRetentionPolicy.whenDeleted=\"Retain\"",
    "spec.persistentVolumeClaimRetentionPolicy.whenScaled=\"Retain\"",
    "spec.podManagementPolicy=\"OrderedReady\"",
    "spec.replicas=1",
    "spec.revisionHistoryLimit=10",
    "spec.volumeClaimTemplates[].spec.volumeMode=\"Filesystem\"",
    "spec.volumeClaimTemplates[].status.phase=\"Pending\"",
];

/// A strategy with numbers; one that was named without any has none. Templates are claims, whatever they say they are.
pub(super) fn set(object: &mut Tree) {
    object.with(&["spec", "volumeClaimTemplates"], |mut claims| {
        claims.each_item(|mut claim| {
            claim.set("apiVersion", "v1");
            claim.set("kind", "PersistentVolumeClaim");
        });
    });
    let strategy = object.at(&["spec", "updateStrategy"]);
    let is_named = strategy.is_some_and(|strategy| {
        !strategy.str("type").is_empty() && present(strategy, "rollingUpdate").is_none()
    });
    if is_named {
        return;
    }
    let numbers = [("partition", Value::Int(0)), ("maxUnavailable", Value::Int(1))];
    rolling(object, "updateStrategy", &numbers);
}
