//! Labels and selectors over them.

use super::{Errors, Path};
use machinery_meta::label_selector::{LabelSelector, Operator};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// A map of labels.
pub fn labels(errors: &mut Errors, path: &Path<'_>, labels: Option<Ref<'_>>) {
    for (key, value) in labels.into_iter().flat_map(Ref::entries) {
        errors.all_invalid(path, key, syntax::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        errors.all_invalid(path, value, syntax::label_value(value));
    }
}

/// A map of annotations.
pub fn annotations(errors: &mut Errors, path: &Path<'_>, annotations: Option<Ref<'_>>) {
    for (key, _) in annotations.into_iter().flat_map(Ref::entries) {
        errors.all_invalid(path, key, syntax::qualified_name(&key.to_lowercase()));
    }
}

/// A `LabelSelector`.
pub fn label_selector(errors: &mut Errors, path: &Path<'_>, selector: Ref<'_>) {
    labels(errors, &path.child("matchLabels"), selector.get("matchLabels"));
    let expressions = path.child("matchExpressions");
    for (index, expression) in selector.list("matchExpressions").enumerate() {
        requirement(errors, &expressions.index(index), expression);
    }
}

fn requirement(errors: &mut Errors, path: &Path<'_>, expression: Ref<'_>) {
    let values = expression.list("values").len();
    match expression.str("operator") {
        "In" | "NotIn" => {
            if values == 0 {
                errors.required(
                    &path.child("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
        }
        "Exists" | "DoesNotExist" => {
            if values > 0 {
                errors.forbidden(
                    &path.child("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
        }
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    errors.all_invalid(
        &path.child("key"),
        expression.str("key"),
        syntax::qualified_name(expression.str("key")),
    );
    let values_path = path.child("values");
    for (index, value) in expression.list("values").enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.all_invalid(&values_path.index(index), value, syntax::label_value(value));
    }
}

/// A `LabelSelector` as something that matches; `None` when it is not valid. An absent one matches nothing and is `None` too.
pub fn parse_label_selector(selector: Option<Ref<'_>>) -> Option<LabelSelector> {
    let selector = selector.filter(|selector| !selector.is_null())?;
    let pairs = selector.get("matchLabels").into_iter().flat_map(Ref::entries);
    let mut parsed =
        LabelSelector::from_pairs(pairs.map(|(key, value)| (key, value.as_str().unwrap_or_default())));
    for expression in selector.list("matchExpressions") {
        let operator = match expression.str("operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        let values = expression
            .list("values")
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect();
        parsed.require(expression.str("key"), operator, values).ok()?;
    }
    Some(parsed)
}

/// A workload's selector as something that matches: an absent one matches nothing; `None` when it is not valid.
pub fn parse_workload_selector(selector: Option<Ref<'_>>) -> Option<LabelSelector> {
    match selector {
        Some(_) => parse_label_selector(selector),
        None => LabelSelector::parse("a,!a").ok(),
    }
}

/// A workload's template must carry labels that its selector matches.
pub fn template_labels_match(
    errors: &mut Errors,
    path: &Path<'_>,
    selector: &LabelSelector,
    template: Ref<'_>,
) {
    let labels = template.at(&["metadata", "labels"]);
    let lookup = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Ref::as_str);
    if !selector.matches_with(lookup) {
        let metadata = path.child("metadata");
        let shown = labels.map_or_else(|| "null".to_owned(), Ref::to_json);
        errors.invalid(
            &metadata.child("labels"),
            machinery_meta::field::Shown(shown),
            "`selector` does not match template `labels`",
        );
    }
}
