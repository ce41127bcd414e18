//! Labels of a node under their names of earlier releases, which follow the present ones. Pure.

use machinery_meta::ObjectHeader;
use std::collections::BTreeMap;

/// A label and its name of earlier releases.
const LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// Labels to write: those of earlier releases that are missing or differ (upstream's `reconcileNodeLabels`).
pub(super) fn reconciled(header: &ObjectHeader) -> BTreeMap<&'static str, String> {
    let follows = |(label, earlier): &(&str, &'static str)| {
        let value = header.label(label)?;
        (header.label(earlier) != Some(value)).then(|| (*earlier, value.to_owned()))
    };
    LABELS.iter().filter_map(follows).collect()
}
