//! Names and labels by which a pod has its place in a set.

use crate::views::{PodView, StatefulSetView};
use machinery_client::Object;

/// The label with the pod's own name, for services of one pod.
pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the pod's ordinal.
pub(super) const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// The label with the name of the pod's revision.
pub(super) const REVISION: &str = "controller-revision-hash";

/// The set and the ordinal that a pod's name speaks of. An ordinal is written without leading zeros: `web-01` is no pod
/// of `web`, where upstream takes it for a second pod of ordinal 1.
pub(super) fn parent_and_ordinal(pod: &str) -> (Option<&str>, Option<i32>) {
    let Some((parent, digits)) = pod.rsplit_once('-') else {
        return (None, None);
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() > 1 && digits.starts_with('0') {
        return (None, None);
    }
    (Some(parent), digits.parse().ok())
}

/// The ordinal of a pod of the set.
pub(super) fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    match parent_and_ordinal(pod) {
        (Some(parent), ordinal) if parent == set => ordinal,
        _ => None,
    }
}

/// The name of the pod with this ordinal.
pub(super) fn pod_name(set: &str, ordinal: i64) -> String {
    format!("{set}-{ordinal}")
}

/// The name of the claim of a template for the pod with this ordinal.
pub(super) fn claim_name(template: &str, set: &str, ordinal: i64) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// Reports whether the set is to have a pod of this ordinal.
pub(super) fn is_in_range(set: &StatefulSetView, ordinal: i32) -> bool {
    let (start, end) = range(set);
    (start..end).contains(&i64::from(ordinal))
}

/// The ordinals that the set is to have: the first, and the one after the last.
pub(super) fn range(set: &StatefulSetView) -> (i64, i64) {
    let start = i64::from(set.start);
    (start, start + i64::from(set.replicas))
}

/// Reports whether a pod of the set has the label with its name.
pub(super) fn matches(pod: &Object<PodView>) -> bool {
    pod.header.label(POD_NAME) == Some(pod.name())
}

/// The name of a pod's revision, empty where it has none.
pub(super) fn revision_of(pod: &Object<PodView>) -> &str {
    pod.header.label(REVISION).unwrap_or("")
}
