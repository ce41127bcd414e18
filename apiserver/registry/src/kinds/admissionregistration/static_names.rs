//! Names of configurations that a file of the server's holds, and no request.

use crate::shared::validation::{Errors, Path};
use machinery_schema::Ref;

const SUFFIX: &str = ".static.k8s.io";

fn name(object: Ref<'_>) -> Option<&str> {
    Some(object.str_at(&["metadata", "name"])).filter(|name| name.ends_with(SUFFIX))
}

/// Upstream's words about a name that is reserved.
fn reserved() -> String {
    format!(
        "names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    )
}

/// A new object may not have such a name.
pub(super) fn created(errors: &mut Errors, object: Ref<'_>) {
    if let Some(name) = name(object) {
        errors.invalid(&Path::of("metadata.name"), name, reserved());
    }
}

/// The warning about one that has it already.
pub(super) fn warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let warned = name(object).filter(|_| old.is_some());
    warned
        .map(|_| format!("metadata.name: {}", reserved()))
        .into_iter()
        .collect()
}
