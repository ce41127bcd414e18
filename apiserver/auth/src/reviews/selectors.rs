//! Selectors of access reviews: what is refused, and what the authorizers see of the rest (upstream's
//! `pkg/apis/authorization/validation` and `pkg/registry/authorization/util`).

use super::spec::{SelectorAttributes, SelectorRequirement};
use machinery_meta::field_selector::Term;
use machinery_meta::label_selector::Operator;
use machinery_meta::{FieldError, FieldPath, FieldSelector, LabelSelector, syntax};

/// The part of a selector that was parsed. All requirements of a selector apply together, so leaving some out only
/// widens the request.
#[derive(Debug)]
pub(super) struct ParsedSelector<S> {
    pub(super) selector: Option<S>,
    /// Some of it was not.
    failed: bool,
}

impl<S> Default for ParsedSelector<S> {
    fn default() -> Self {
        Self {
            selector: None,
            failed: false,
        }
    }
}

impl<S> ParsedSelector<S> {
    fn of(selector: Option<S>) -> Self {
        let failed = selector.is_none();
        Self { selector, failed }
    }

    fn error(&self, name: &str) -> Option<String> {
        let partially = if self.selector.is_some() { "partially " } else { "" };
        self.failed
            .then(|| format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"))
    }
}

/// The `evaluationError` that the two selectors are worth.
pub(super) fn errors(
    fields: &ParsedSelector<FieldSelector>,
    labels: &ParsedSelector<LabelSelector>,
) -> String {
    let sentences = [fields.error("fieldSelector"), labels.error("labelSelector")];
    sentences.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The comparisons of a field selector. A requirement's text is never read again as a selector: it may hold anything.
pub(super) fn fields(given: &SelectorAttributes) -> ParsedSelector<FieldSelector> {
    if !given.raw_selector.is_empty() {
        return ParsedSelector::of(FieldSelector::parse(&given.raw_selector).ok());
    }
    let terms: Vec<Term> = given.requirements.iter().filter_map(term).collect();
    if terms.is_empty() {
        return ParsedSelector {
            selector: None,
            failed: !given.requirements.is_empty(),
        };
    }
    let failed = terms.len() < given.requirements.len();
    match FieldSelector::from_terms(terms) {
        Ok(selector) => ParsedSelector {
            selector: Some(selector),
            failed,
        },
        Err(_) => ParsedSelector::of(None),
    }
}

fn term(requirement: &SelectorRequirement) -> Option<Term> {
    let equal = match requirement.operator.as_str() {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let [value] = requirement.values.as_slice() else {
        return None;
    };
    Some(Term {
        field: requirement.key.clone(),
        value: value.clone(),
        equal,
    })
}

/// The requirements of a label selector; as with fields, leaving some out only widens the request.
pub(super) fn labels(given: &SelectorAttributes) -> ParsedSelector<LabelSelector> {
    if !given.raw_selector.is_empty() {
        return ParsedSelector::of(LabelSelector::parse(&given.raw_selector).ok());
    }
    let known: Vec<_> = given.requirements.iter().filter_map(requirement).collect();
    if known.is_empty() {
        return ParsedSelector {
            selector: None,
            failed: !given.requirements.is_empty(),
        };
    }
    let failed = known.len() < given.requirements.len();
    let mut selector = LabelSelector::everything();
    match selector.require_all(known.into_iter().map(Ok)) {
        Ok(()) => ParsedSelector {
            selector: Some(selector),
            failed,
        },
        Err(_) => ParsedSelector::of(None),
    }
}

fn requirement(given: &SelectorRequirement) -> Option<(&str, Operator, Vec<String>)> {
    let operator = match given.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Some((&given.key, operator, given.values.clone()))
}

pub(super) fn check_fields(given: &SelectorAttributes, path: &FieldPath) -> Vec<FieldError> {
    let mut problems = check_form(given, path);
    for (index, one) in given.requirements.iter().enumerate() {
        let path = path.child("requirements").index(index);
        if one.key.is_empty() {
            problems.push(FieldError::required(&path.child("key"), "must be specified"));
        }
        problems.extend(check_values(one, &path));
    }
    problems
}

pub(super) fn check_labels(given: &SelectorAttributes, path: &FieldPath) -> Vec<FieldError> {
    let mut problems = check_form(given, path);
    for (index, one) in given.requirements.iter().enumerate() {
        let path = path.child("requirements").index(index);
        problems.extend(check_values(one, &path));
        for problem in syntax::qualified_name(&one.key) {
            problems.push(FieldError::invalid(&path.child("key"), &one.key, problem));
        }
        for (index, value) in one.values.iter().enumerate() {
            let path = path.child("values").index(index);
            let found = syntax::label_value(value).into_iter();
            problems.extend(found.map(|problem| FieldError::invalid(&path, value, problem)));
        }
    }
    problems
}

/// Either text or requirements.
fn check_form(given: &SelectorAttributes, path: &FieldPath) -> Vec<FieldError> {
    match (given.raw_selector.is_empty(), given.requirements.is_empty()) {
        (false, false) => vec![FieldError::invalid(
            &path.child("rawSelector"),
            &given.raw_selector,
            "may not specified at the same time as requirements",
        )],
        (true, true) => vec![FieldError::required(
            &path.child("requirements"),
            format!(
                "when {} is specified, requirements or rawSelector is required",
                path.as_str()
            ),
        )],
        _ => Vec::new(),
    }
}

/// Operators that are not known are those of clients newer than this server.
fn check_values(requirement: &SelectorRequirement, path: &FieldPath) -> Option<FieldError> {
    let path = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if requirement.values.is_empty() => Some(FieldError::required(
            &path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !requirement.values.is_empty() => Some(FieldError::forbidden(
            &path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(raw: &str, requirements: &[(&str, &str, &[&str])]) -> SelectorAttributes {
        let requirements = requirements
            .iter()
            .map(|(key, operator, values)| SelectorRequirement {
                key: (*key).to_owned(),
                operator: (*operator).to_owned(),
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            });
        SelectorAttributes {
            raw_selector: raw.to_owned(),
            requirements: requirements.collect(),
        }
    }

    #[test]
    fn field_requirement_brings_no_other_comparison() {
        let injected = given("", &[("metadata.name", "In", &["a,spec.nodeName=n1"])]);
        let selector = fields(&injected).selector.unwrap();
        assert_eq!(selector.required("spec.nodeName"), None);
        assert_eq!(selector.required("metadata.name"), Some("a,spec.nodeName=n1"));
        let injected = given("", &[("spec.nodeName=n1,metadata.name", "In", &["a"])]);
        let selector = fields(&injected).selector.unwrap();
        assert_eq!(selector.required("spec.nodeName"), None);
    }

    #[test]
    fn selectors_that_do_not_parse_are_reported() {
        let read = |of: &SelectorAttributes| {
            (
                errors(&fields(of), &ParsedSelector::default()),
                fields(of).selector.is_some(),
            )
        };
        let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error".to_owned();
        let partially =
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error".to_owned();
        assert_eq!(read(&given("a=b", &[])), (String::new(), true));
        assert_eq!(read(&given("&", &[])), (ignored.clone(), false));
        assert_eq!(read(&given("", &[("a", "In", &["b"])])), (String::new(), true));
        assert_eq!(
            read(&given("", &[("a", "In", &["b", "c"])])),
            (ignored.clone(), false)
        );
        assert_eq!(read(&given("", &[("a", "Exists", &[])])), (ignored, false));
        assert_eq!(
            read(&given("", &[("a", "NotIn", &["b"]), ("a", "Foo", &["b"])])),
            (partially, true)
        );
        let labelled = given("", &[("a", "Foo", &[])]);
        assert_eq!(
            errors(&ParsedSelector::default(), &labels(&labelled)),
            "spec.resourceAttributes.labelSelector ignored due to parse error"
        );
    }

    #[test]
    fn selectors_are_checked_as_upstream_does() {
        let path = FieldPath::new("s");
        let messages =
            |problems: Vec<FieldError>| -> Vec<String> { problems.iter().map(ToString::to_string).collect() };
        let none: [&str; 0] = [];
        assert_eq!(messages(check_fields(&given("a=b", &[]), &path)), none);
        assert_eq!(
            messages(check_fields(&given("", &[]), &path)),
            ["s.requirements: Required value: when s is specified, requirements or rawSelector is required"]
        );
        assert_eq!(
            messages(check_fields(&given("a=b", &[("", "In", &[])]), &path)),
            [
                "s.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
                "s.requirements[0].key: Required value: must be specified",
                "s.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ]
        );
        assert_eq!(
            messages(check_labels(
                &given("", &[("a", "Exists", &["b"]), ("b", "New", &["c"])]),
                &path
            )),
            [
                "s.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            ]
        );
        assert_eq!(
            messages(check_labels(&given("", &[("&", "In", &["&"])]), &path)).len(),
            2
        );
    }
}
