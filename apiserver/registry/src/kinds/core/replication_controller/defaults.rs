//! Defaults of ReplicationControllers.

use machinery_schema::{Ref, Step, Tree};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.replicas=1"];

/// The oldest controller takes labels and selector from its template.
pub(super) fn set(object: &mut Tree) {
    let Some(labels) = object
        .at(&["spec", "template", "metadata", "labels"])
        .map(Ref::to_tree)
    else {
        return;
    };
    if labels.root().is_empty() {
        return;
    }
    for path in [["spec", "selector"], ["metadata", "labels"]] {
        if object.at(&path).is_none_or(Ref::is_empty) {
            object.set(&path.map(Step::Name), labels.root());
        }
    }
}
