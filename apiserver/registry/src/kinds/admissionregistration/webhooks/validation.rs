//! Validation of configurations of webhooks.

use crate::kinds::admissionregistration::expressions::{Known, conditions_of, match_conditions};
use crate::kinds::admissionregistration::rules::{rule, texts};
use crate::kinds::admissionregistration::static_names;
use crate::shared::validation::{
    Errors, Path, label_selector, one_of, webhook_service_problems, webhook_url_problems,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

/// Versions of AdmissionReview that this server speaks.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const TIMEOUTS: std::ops::RangeInclusive<i64> = 1..=30;

/// Rules that do not hold for a configuration whose earlier state breaks them already.
#[derive(Debug, Clone)]
struct Leniency<'a> {
    any_side_effects: bool,
    any_reviews: bool,
    repeated_names: bool,
    any_label_values: bool,
    conditions: bool,
    known: Known<'a>,
}

impl<'a> Leniency<'a> {
    fn none() -> Self {
        Self {
            any_side_effects: false,
            any_reviews: false,
            repeated_names: false,
            any_label_values: false,
            conditions: false,
            known: Known::new(),
        }
    }

    fn of(new: Ref<'_>, old: Ref<'a>) -> Self {
        let mut names = HashSet::new();
        let known = |webhook: Ref<'_>| {
            let reviews = texts(webhook, "admissionReviewVersions");
            reviews.is_empty() || reviews.iter().any(|own| REVIEWS.contains(own))
        };
        Self {
            any_side_effects: old
                .list("webhooks")
                .any(|own| !NO_SIDE_EFFECTS.contains(&own.str("sideEffects"))),
            any_reviews: !old.list("webhooks").all(known),
            repeated_names: !old.list("webhooks").all(|own| names.insert(own.str("name"))),
            any_label_values: old.list("webhooks").any(has_wrong_selectors),
            conditions: same_conditions(new, old),
            known: old.list("webhooks").flat_map(conditions_of).collect(),
        }
    }
}

fn same_conditions(new: Ref<'_>, old: Ref<'_>) -> bool {
    let of = |own: Ref<'_>| {
        own.get("matchConditions")
            .filter(|own| !own.is_empty())
            .map(Ref::to_json)
    };
    new.list("webhooks").map(of).eq(old.list("webhooks").map(of))
}

fn has_wrong_selectors(webhook: Ref<'_>) -> bool {
    let mut errors = Errors::new();
    selectors(&mut errors, &Path::ROOT, webhook, false);
    !errors.is_empty()
}

/// Every problem of a new ValidatingWebhookConfiguration.
pub(crate) fn validating(configuration: Ref<'_>) -> Vec<FieldError> {
    created(configuration, false)
}

/// Every problem of a changed ValidatingWebhookConfiguration.
pub(crate) fn validating_update(configuration: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    whole(configuration, &Leniency::of(configuration, old), false).into_list()
}

/// Every problem of a new MutatingWebhookConfiguration.
pub(crate) fn mutating(configuration: Ref<'_>) -> Vec<FieldError> {
    created(configuration, true)
}

/// Every problem of a changed MutatingWebhookConfiguration.
pub(crate) fn mutating_update(configuration: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    whole(configuration, &Leniency::of(configuration, old), true).into_list()
}

fn created(configuration: Ref<'_>, mutates: bool) -> Vec<FieldError> {
    let mut errors = whole(configuration, &Leniency::none(), mutates);
    static_names::created(&mut errors, configuration);
    errors.into_list()
}

fn whole(configuration: Ref<'_>, lenient: &Leniency<'_>, mutates: bool) -> Errors {
    let mut errors = Errors::new();
    let list = Path::of("webhooks");
    let mut names = HashSet::new();
    for (index, own) in configuration.list("webhooks").enumerate() {
        let path = list.index(index);
        webhook(&mut errors, &path, own, lenient, mutates);
        reviews(&mut errors, &path.child("admissionReviewVersions"), own, lenient);
        let name = own.str("name");
        if !lenient.repeated_names && !name.is_empty() && !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
    errors
}

fn webhook(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, lenient: &Leniency<'_>, mutates: bool) {
    qualified(errors, &path.child("name"), own.str("name"));
    let rules = path.child("rules");
    for (index, each) in own.list("rules").enumerate() {
        rule(errors, &rules.index(index), each);
    }
    one_of(errors, path, own, "failurePolicy", &["Fail", "Ignore"], None);
    one_of(errors, path, own, "matchPolicy", &["Equivalent", "Exact"], None);
    side_effects(errors, path, own, lenient);
    let timeout = own.get("timeoutSeconds").and_then(Ref::as_i64);
    if let Some(timeout) = timeout.filter(|own| !TIMEOUTS.contains(own)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), timeout, detail);
    }
    selectors(errors, path, own, lenient.any_label_values);
    if mutates {
        one_of(
            errors,
            path,
            own,
            "reinvocationPolicy",
            &["IfNeeded", "Never"],
            None,
        );
    }
    client(errors, &path.child("clientConfig"), own);
    if !lenient.conditions {
        match_conditions(errors, &path.child("matchConditions"), own, false, &lenient.known);
    }
}

/// Go's `IsFullyQualifiedName`.
fn qualified(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let problems = syntax::dns1123_subdomain(name);
    if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, detail);
    }
}

fn side_effects(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, lenient: &Leniency<'_>) {
    let allowed: &[&str] = match lenient.any_side_effects {
        true => &SIDE_EFFECTS,
        false => &NO_SIDE_EFFECTS,
    };
    let required = format!("must specify one of {}", allowed.join(", "));
    one_of(errors, path, own, "sideEffects", allowed, Some(&required));
}

/// Selectors; a value that is no label's is refused unless there was one before.
fn selectors(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, any_values: bool) {
    for name in ["namespaceSelector", "objectSelector"] {
        let Some(selector) = own.get(name).filter(|own| !own.is_null()) else {
            continue;
        };
        let mut found = Errors::new();
        label_selector(&mut found, &path.child(name), selector);
        let found = found.into_list().into_iter();
        errors.extend(found.filter(|error| !any_values || !error.path.as_str().contains(".values[")));
    }
}

fn client(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    let client = own.get("clientConfig");
    let of = |name: &str| client.and_then(|own| own.get(name)).filter(|own| !own.is_null());
    match (of("url"), of("service")) {
        (Some(url), None) => {
            let url = url.as_str().unwrap_or_default();
            errors.extend(webhook_url_problems(&path.child("url").to_path(), url));
        }
        (None, Some(service)) => {
            errors.extend(webhook_service_problems(
                &path.child("service").to_path(),
                service,
            ));
        }
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn reviews(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, lenient: &Leniency<'_>) {
    let versions = texts(own, "admissionReviewVersions");
    if versions.is_empty() {
        return errors.required(path, &format!("must specify one of {}", REVIEWS.join(", ")));
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(index), *version, "duplicate version");
            continue;
        }
        errors.all_invalid(&path.index(index), version, syntax::dns1035_label(version));
    }
    if !lenient.any_reviews && !versions.iter().any(|own| REVIEWS.contains(own)) {
        let shown = own.get("admissionReviewVersions").map(Ref::to_json);
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.invalid(path, Shown(shown.unwrap_or_default()), detail);
    }
}
