//! Defaults of FlowSchemas.

use machinery_schema::{Ref, Tree};

/// Zero is no precedence, and stands for the usual one.
pub(super) fn set(object: &mut Tree) {
    let given = object
        .at(&["spec", "matchingPrecedence"])
        .and_then(Ref::as_i64)
        .unwrap_or(0);
    if given == 0 && object.get("spec").is_some() {
        object.with(&["spec"], |mut spec| spec.set("matchingPrecedence", 1000));
    }
}
