//! Client-side apply's own record, as far as `kubectl apply --server-side` takes it over.
//!
//! Upstream: `apimachinery/pkg/util/managedfields/internal/lastappliedmanager.go` and `lastappliedupdater.go`.

use super::Subject;
use super::subject::document;
use crate::engine::metadata::MAX_ANNOTATIONS_BYTES;
use machinery_schema::apply::{FieldSet, Steps};
use machinery_schema::{Exceeded, Ref, Step, Tree, encode_json};

/// The manager whose applies continue what was applied by the client; others keep out of it.
const KUBECTL: &str = "kubectl";
const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields that a manager may change although others own them: those that the client applied last and that are unchanged
/// since.
pub(super) fn continued(
    steps: &Steps,
    subject: Subject<'_>,
    manager: &str,
    live: &Tree,
) -> Result<FieldSet, Exceeded> {
    let nothing = Ok(FieldSet::default());
    let Some(text) = record(live).filter(|_| manager == KUBECTL) else {
        return nothing;
    };
    let Ok(last) = Tree::from_json(text) else {
        return nothing;
    };
    steps.read(&last)?;
    let last_typed = subject.typed(&last);
    if last.str_at(&["apiVersion"]) != subject.gvk.api_version() || !last_typed.problems().is_empty() {
        return nothing;
    }
    let since = last_typed.compare(&document(live));
    let mut fields = last_typed.fields();
    for changed in [&since.modified, &since.added, &since.removed] {
        fields = steps.difference(&fields, changed)?;
    }
    Ok(fields)
}

fn record(object: &Tree) -> Option<&str> {
    let record = object.at(&ANNOTATIONS)?.get(ANNOTATION)?.as_str()?;
    Some(record).filter(|record| !record.is_empty())
}

/// Keeps the client's record, where there is one, at what was applied, so that either way of applying can go on.
pub(super) fn renew(manager: &str, configuration: &Tree, object: &mut Tree) {
    if manager != KUBECTL || record(object).is_none() {
        return;
    }
    let mut applied = configuration.clone();
    applied.remove(&[ANNOTATIONS[0], ANNOTATIONS[1], ANNOTATION]);
    let mut text = Vec::with_capacity(1024);
    encode_json(&applied, &mut text);
    text.push(b'\n');
    let text = String::from_utf8_lossy(&text);
    let annotation = [ANNOTATIONS[0], ANNOTATIONS[1], ANNOTATION].map(Step::Name);
    object.set(&annotation, text.as_ref());
    let annotations = object.at(&ANNOTATIONS).into_iter().flat_map(Ref::entries);
    let bytes: usize = annotations
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > MAX_ANNOTATIONS_BYTES {
        object.remove(&[ANNOTATIONS[0], ANNOTATIONS[1], ANNOTATION]);
    }
}
