//! Validation of RuntimeClasses.

use crate::kinds::core::pod::validation::{resources, scheduling};
use crate::shared::validation::{Errors, Path, labels, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use machinery_schema::leaf::go_quote;
use std::collections::HashSet;

/// Every problem of a new RuntimeClass.
pub(crate) fn validate_runtime_class(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let handler = class.str("handler");
    if handler.is_empty() {
        errors.required(&Path::of("handler"), "");
    } else {
        let problems = match handler.len() {
            64.. => vec!["must be no more than 63 bytes".to_owned()],
            _ => syntax::dns1123_label(handler),
        };
        errors.all_invalid(&Path::of("handler"), handler, problems);
    }
    if let Some(overhead) = class.at(&["overhead", "podFixed"]) {
        resources::overhead(&mut errors, &Path::of("overhead"), overhead);
    }
    if let Some(scheduling) = present(class, "scheduling") {
        validate_scheduling(&mut errors, &Path::of("scheduling"), scheduling);
    }
    errors.into_list()
}

/// Validates what pods of the class get from it.
fn validate_scheduling(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    labels(errors, &path.child("nodeSelector"), own.get("nodeSelector"));
    let tolerations = path.child("tolerations");
    scheduling::tolerations(errors, &tolerations, own);
    let mut seen = HashSet::new();
    for (index, toleration) in own.list("tolerations").enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|name| toleration.str(name));
        if !seen.insert(key) {
            errors.duplicate(&tolerations.index(index), Shown(internal(toleration)));
        }
    }
}

/// A toleration by Go's names of its members.
fn internal(toleration: Ref<'_>) -> String {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|name| go_quote(toleration.str(name)));
    let seconds = toleration
        .get("tolerationSeconds")
        .map_or_else(|| "null".to_owned(), Ref::to_json);
    format!(
        r#"{{"Key":{key},"Operator":{operator},"Value":{value},"Effect":{effect},"TolerationSeconds":{seconds}}}"#
    )
}

/// Every problem of a changed class; pods were started with its handler.
pub(crate) fn validate_runtime_class_update(class: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let at = Path::of("handler");
    let changed = class.str("handler") != old.str("handler");
    let immutable = |errors: &mut Errors| {
        if changed {
            errors.invalid(&at, Shown("null".to_owned()), "field is immutable");
        }
    };
    // Upstream's order: a handler that is missing comes last.
    let is_missing = class.str("handler").is_empty();
    if is_missing {
        immutable(&mut errors);
    }
    errors.extend(validate_runtime_class(class));
    if !is_missing {
        immutable(&mut errors);
    }
    errors.into_list()
}
