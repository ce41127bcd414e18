//! Numbers the sets: which is the new one, what it is called, what its annotations say, which old ones go.

use super::rolling::counts_are_of_its_size;
use super::sets::SetRef;
use crate::views::template::{POD_TEMPLATE_HASH, fnv, tree};
use crate::views::{DeploymentView, ReplicaSetView};
use machinery_client::Object;
use machinery_meta::TextMap;
use std::collections::BTreeMap;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Upstream's bound on the length of the history annotation.
const MAX_HISTORY_BYTES: usize = 2_000;

/// Annotations that a Deployment and its sets do not share.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

/// The revision of a set, zero where it has none.
pub(super) fn revision(set: &ReplicaSetView) -> i64 {
    set.annotations
        .get(REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// The set of the present template; the oldest, should there be several.
pub(super) fn find_new(deployment: &DeploymentView, sets: &[SetRef]) -> Option<SetRef> {
    let same = sets
        .iter()
        .filter(|set| set.template.fingerprint == deployment.template.fingerprint);
    same.min_by_key(|set| (set.created, set.key().clone())).cloned()
}

/// The hash that names a set and marks its pods; collisions change it.
pub(super) fn template_hash(deployment: &DeploymentView) -> String {
    let mut seed = deployment.template.fingerprint.to_le_bytes().to_vec();
    if let Some(count) = deployment.status.collision_count {
        seed.extend(count.to_le_bytes());
    }
    let hash = fnv(&seed);
    let short = u32::try_from(hash >> 32).unwrap_or(0) ^ u32::try_from(hash & 0xffff_ffff).unwrap_or(0);
    machinery_reconcile::names::safe_encode(&short.to_string())
}

/// The annotations the new set is to have: the Deployment's, its revision, the history when the revision moved on, and
/// the sizes that scaling in proportion goes by.
pub(super) fn new_annotations(
    deployment: &Object<DeploymentView>,
    old: Option<&TextMap>,
    max_old_revision: i64,
) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = old.map(tree).unwrap_or_default();
    let copied = deployment
        .annotations
        .iter()
        .filter(|(name, _)| !NOT_COPIED.contains(name));
    out.extend(copied.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let own = out.get(REVISION).cloned();
    let own_number: i64 = own.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let wanted = max_old_revision.saturating_add(1);
    if own_number < wanted {
        out.insert(REVISION.to_owned(), wanted.to_string());
        if let Some(own) = own {
            append_history(&mut out, &own);
        }
    }
    if old.is_none() {
        out.extend(sizes(deployment));
    }
    out
}

fn append_history(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(REVISION_HISTORY).filter(|text| !text.is_empty());
    let mut text = history.map_or_else(|| revision.to_owned(), |text| format!("{text},{revision}"));
    while text.len() > MAX_HISTORY_BYTES {
        match text.split_once(',') {
            Some((_, rest)) => text = rest.to_owned(),
            None => break,
        }
    }
    annotations.insert(REVISION_HISTORY.to_owned(), text);
}

/// The two size annotations.
pub(super) fn sizes(deployment: &DeploymentView) -> [(String, String); 2] {
    let surge = deployment.rolling.map_or(0, |rolling| rolling.max_surge);
    let max = deployment.replicas.saturating_add(surge);
    [
        (DESIRED_REPLICAS.to_owned(), deployment.replicas.to_string()),
        (MAX_REPLICAS.to_owned(), max.to_string()),
    ]
}

/// The size a set was last scaled for.
pub(super) fn desired_of(set: &ReplicaSetView) -> Option<i32> {
    set.annotations.get(DESIRED_REPLICAS)?.parse().ok()
}

/// The template's labels with the hash.
pub(super) fn labels(deployment: &DeploymentView, hash: &str) -> BTreeMap<String, String> {
    let mut labels = tree(&deployment.template.metadata.labels);
    labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
    labels
}

/// Old sets beyond the history limit that are empty and settled, oldest revision first.
pub(super) fn to_clean_up(deployment: &DeploymentView, old: &[SetRef]) -> Vec<SetRef> {
    let Some(limit) = deployment.revision_history_limit else {
        return Vec::new();
    };
    let mut candidates: Vec<_> = old
        .iter()
        .filter(|set| !set.header.is_deleting())
        .cloned()
        .collect();
    let excess = candidates
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    candidates.sort_by_key(|set| (revision(set), set.created));
    candidates.truncate(excess);
    let empty = |set: &SetRef| set.replicas == 0 && set.status.replicas == 0 && counts_are_of_its_size(set);
    candidates.retain(empty);
    candidates
}
