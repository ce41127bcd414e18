//! Validation of Jobs (upstream's `pkg/apis/batch/validation`).

use super::policies;
use crate::kinds::core::pod::validation as pod;
use crate::shared::validation::{
    Errors, Path, domain_prefixed_path, label_selector, non_negative, parse_label_selector,
    parse_workload_selector, present, template_labels_match,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Completions, and failed indexes, that an indexed job may have at most.
const MAX_INDEXED: i64 = 100_000;
/// The same of a job with more completions than that and a limit for each index.
const MAX_OF_MANY: i64 = 10_000;
const MAX_MANAGED_BY: usize = 63;

/// Every problem of a new Job.
pub fn validate(job: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    if let Some(spec) = job.get("spec") {
        generated_selector(&mut errors, job, spec);
        validate_spec(&mut errors, &path, spec);
        selector(&mut errors, &path, spec);
    }
    validate_name(&mut errors, job);
    errors.into_list()
}

/// Pods of an indexed job are named by their index, and their host name is a label.
pub(super) fn validate_name(errors: &mut Errors, job: Ref<'_>) {
    let spec = |name: &str| job.at(&["spec", name]);
    let completions = spec("completions").and_then(Ref::as_i64).unwrap_or_default();
    if spec("completionMode").and_then(Ref::as_str) != Some("Indexed") || completions <= 0 {
        return;
    }
    let name = job.str_at(&["metadata", "name"]);
    let longest = format!("{name}-{}", completions - 1);
    if !syntax::dns1123_label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&Path::of("metadata").child("name"), name, detail);
    }
}

/// The selector and the labels that the registry makes must be as it makes them, unless `manualSelector` is set.
fn generated_selector(errors: &mut Errors, job: Ref<'_>, spec: Ref<'_>) {
    let manual = spec.get("manualSelector").and_then(Ref::as_bool) == Some(true);
    let Some(selector) = present(spec, "selector").filter(|_| !manual) else {
        return;
    };
    let own = super::own_labels(
        job.str_at(&["metadata", "uid"]),
        job.str_at(&["metadata", "name"]),
    );
    let path = Path::of("spec").child("template.metadata").to_path();
    let labels = spec.at(&["template", "metadata", "labels"]);
    for (label, value) in own {
        let path = path.child("labels").key(label);
        let shown = Shown(labels.map_or_else(|| "null".into(), Ref::to_json));
        match labels.and_then(|labels| labels.get(label)).and_then(Ref::as_str) {
            Some(given) if given == value => {}
            Some(_) => errors.push(FieldError::invalid(&path, shown, format!("must be '{value}'"))),
            None => errors.push(FieldError::required(&path, format!("must be '{value}'"))),
        }
    }
    let value = |key: &str| {
        own.iter()
            .find(|(label, _)| *label == key)
            .map(|(_, value)| *value)
    };
    if parse_label_selector(Some(selector)).is_some_and(|parsed| !parsed.matches_with(value)) {
        let shown = Shown(selector.to_json());
        errors.invalid(
            &Path::of("spec").child("selector"),
            shown,
            "`selector` not auto-generated",
        );
    }
}

/// Validates a job's spec but for the generated selector; also within a CronJob.
pub fn validate_spec(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ] {
        non_negative(errors, path, spec, name);
    }
    non_negative(errors, path, spec, "maxFailedIndexes");
    if present(spec, "maxFailedIndexes").is_some() && present(spec, "backoffLimitPerIndex").is_none() {
        let at = path.child("backoffLimitPerIndex");
        errors.required(&at, "when maxFailedIndexes is specified");
    }
    managed_by(errors, &path.child("managedBy"), spec);
    completion_mode(errors, path, spec);
    policies(errors, path, spec);
    template(errors, path, spec);
}

/// Validates `managedBy`, the name of an external controller.
fn managed_by(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if let Some(name) = present(spec, "managedBy").and_then(Ref::as_str) {
        domain_prefixed_path(errors, path, name);
        if name.len() > MAX_MANAGED_BY {
            errors.too_long(path, MAX_MANAGED_BY);
        }
    }
}

fn completion_mode(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mode = present(spec, "completionMode").and_then(Ref::as_str);
    match mode.unwrap_or("NonIndexed") {
        "NonIndexed" => {
            for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = present(spec, name).and_then(Ref::as_i64) {
                    errors.invalid(&path.child(name), number, "requires indexed completion mode");
                }
            }
        }
        "Indexed" => indexed(errors, path, spec),
        other => errors.not_supported(&path.child("completionMode"), other, &["NonIndexed", "Indexed"]),
    }
}

/// The lists of indexes in a status stay short enough to be stored.
fn indexed(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let number = |name: &str| present(spec, name).and_then(Ref::as_i64);
    let completions = number("completions");
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    at_most(
        errors,
        path,
        spec,
        "parallelism",
        MAX_INDEXED,
        " when completion mode is Indexed",
    );
    let failed = number("maxFailedIndexes");
    if let Some(failed) = failed.filter(|failed| completions.is_some_and(|all| *failed > all)) {
        let detail = "must be less than or equal to completions";
        errors.invalid(&path.child("maxFailedIndexes"), failed, detail);
    }
    at_most(errors, path, spec, "maxFailedIndexes", MAX_INDEXED, "");
    if completions.is_none_or(|own| own <= MAX_INDEXED) || number("backoffLimitPerIndex").is_none() {
        return;
    }
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MAX_INDEXED}");
        errors.required(&path.child("maxFailedIndexes"), &detail);
    }
    let when = format!(" when completions are above {MAX_INDEXED} and used with backoff limit per index");
    at_most(errors, path, spec, "parallelism", MAX_OF_MANY, &when);
    at_most(errors, path, spec, "maxFailedIndexes", MAX_OF_MANY, &when);
}

fn at_most(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, name: &str, limit: i64, when: &str) {
    let value = present(spec, name).and_then(Ref::as_i64);
    if let Some(value) = value.filter(|value| *value > limit) {
        let detail = format!("must be less than or equal to {limit}{when}");
        errors.invalid(&path.child(name), value, detail);
    }
}

fn policies(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let failure = present(spec, "podFailurePolicy");
    if let Some(policy) = failure {
        policies::failure(errors, &path.child("podFailurePolicy"), policy, spec);
    }
    if let Some(policy) = present(spec, "successPolicy") {
        let at = path.child("successPolicy");
        if spec.str("completionMode") == "Indexed" {
            policies::success(errors, &at, policy, spec);
        } else {
            errors.invalid(&at, Shown(policy.to_json()), "requires indexed completion mode");
        }
    }
    let replacement = present(spec, "podReplacementPolicy").and_then(Ref::as_str);
    let known: &[&str] = match failure {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    if let Some(replacement) = replacement.filter(|replacement| !known.contains(replacement)) {
        errors.not_supported(&path.child("podReplacementPolicy"), replacement, known);
    }
}

pub(super) fn selector(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let selector = present(spec, "selector");
    match selector {
        None => errors.required(&path.child("selector"), ""),
        Some(selector) => label_selector(errors, &path.child("selector"), selector),
    }
    if let (Some(selector), Some(template)) = (parse_workload_selector(selector), spec.get("template")) {
        template_labels_match(errors, &path.child("template"), &selector, template);
    }
}

fn template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        return;
    };
    pod::validate_template(errors, &at, template);
    let policy = template.str_at(&["spec", "restartPolicy"]);
    let at = at.child("spec.restartPolicy");
    match policy {
        "" | "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if present(spec, "podFailurePolicy").is_some() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&at, policy, detail);
        }
        "OnFailure" => {}
        other => errors.not_supported(&at, other, &["OnFailure", "Never"]),
    }
}
