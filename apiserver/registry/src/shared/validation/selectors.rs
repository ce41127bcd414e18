//! Labels and selectors over them.

use super::{Errors, Path};
use machinery_meta::label_selector::{LabelSelector, MAX_REQUIREMENTS, Operator, ParseSelectorError};
use machinery_meta::syntax;
use machinery_schema::Ref;
use machinery_semantics::selectors::operator;

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
    let count = selector.list("matchExpressions").count();
    if count > MAX_REQUIREMENTS {
        // Each look at an object compares every one of them: upstream has no such bound (decision 0094).
        errors.too_many(&expressions, count, MAX_REQUIREMENTS);
        return;
    }
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
    let labels = selector.get("matchLabels").into_iter().flat_map(Ref::entries);
    let labels = labels.map(|(key, value)| {
        let value = value.as_str().unwrap_or_default().to_owned();
        Ok((key, Operator::Equals, vec![value]))
    });
    let expressions = selector.list("matchExpressions").map(read_requirement);
    let mut parsed = LabelSelector::from_pairs::<String, String>([]);
    parsed.require_all(labels.chain(expressions)).ok()?;
    Some(parsed)
}

fn read_requirement(expression: Ref<'_>) -> Result<(&str, Operator, Vec<String>), ParseSelectorError> {
    let operator = operator(expression.str("operator"))?;
    let values = expression.list("values");
    let values = values.filter_map(|value| value.as_str().map(str::to_owned));
    Ok((expression.str("key"), operator, values.collect()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::field::FieldErrorKind;
    use machinery_schema::Tree;

    #[test]
    fn selector_has_at_most_a_thousand_expressions() {
        for (count, refused) in [(MAX_REQUIREMENTS, 0), (MAX_REQUIREMENTS + 1, 1)] {
            let expressions: Vec<_> = (0..count)
                .map(|number| serde_json::json!({"key": format!("k{number}"), "operator": "Exists"}))
                .collect();
            let selector = serde_json::json!({"matchExpressions": expressions}).to_string();
            let tree = Tree::from_json(&selector).unwrap();
            let mut errors = Errors::new();
            label_selector(&mut errors, &Path::of("selector"), tree.root());
            assert_eq!(errors.count(FieldErrorKind::TooMany), refused, "{count}");
        }
    }
}
