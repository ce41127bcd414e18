//! What makes a Job acceptable (upstream's `pkg/apis/batch/validation`).

use crate::core::pod::validation as pod;
use crate::validation::{
    Errors, Path, immutable, label_selector, non_negative, parse_label_selector, present,
    template_labels_match,
};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// How many pods an indexed job may run at once.
const MAX_PARALLELISM_INDEXED: i64 = 100_000;
/// How many rules a pod failure policy may have.
const MAX_FAILURE_RULES: usize = 20;

/// Every problem of a new Job.
pub fn validate(job: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    if let Some(spec) = job.get("spec") {
        generated_selector(&mut errors, &path, job, spec);
        validate_spec(&mut errors, &path, spec);
        selector(&mut errors, &path, spec);
    }
    errors.into_list()
}

/// Every problem of a changed Job: what a run has begun with stays.
pub fn validate_update(job: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let (Some(spec), Some(old_spec)) = (job.get("spec"), old.get("spec")) else {
        return Vec::new();
    };
    validate_spec(&mut errors, &path, spec);
    selector(&mut errors, &path, spec);
    let fixed = [
        "completions",
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    for name in fixed {
        let same = spec.get(name).map(Ref::to_json) == old_spec.get(name).map(Ref::to_json);
        let scaled = name == "completions" && elastic(spec, old_spec);
        let suspended = name == "template"
            && old_spec.get("suspend").and_then(Ref::as_bool) == Some(true)
            && old.at(&["status", "startTime"]).is_none();
        if !same && !scaled && !suspended {
            immutable(
                &mut errors,
                &path.child(name),
                spec.get(name),
                old_spec.get(name),
                "field is immutable",
            );
        }
    }
    errors.into_list()
}

/// An indexed job may change its size when completions and parallelism go together.
fn elastic(spec: Ref<'_>, old: Ref<'_>) -> bool {
    let number = |spec: Ref<'_>, name| spec.get(name).and_then(Ref::as_i64);
    spec.str("completionMode") == "Indexed"
        && old.str("completionMode") == "Indexed"
        && number(spec, "completions").is_some()
        && number(spec, "completions") == number(spec, "parallelism")
}

/// The selector that the registry made must not have been given by hand, unless it is said to be.
fn generated_selector(errors: &mut Errors, path: &Path<'_>, job: Ref<'_>, spec: Ref<'_>) {
    if spec.get("manualSelector").and_then(Ref::as_bool) == Some(true) {
        return;
    }
    let uid = job.str_at(&["metadata", "uid"]);
    let Some(selector) = present(spec, "selector") else {
        return;
    };
    let label = selector
        .get("matchLabels")
        .map(|labels| labels.str("batch.kubernetes.io/controller-uid"));
    if label.is_some_and(|label| label != uid) || label.is_none() {
        let shown = machinery_meta::field::Shown(selector.to_json());
        errors.invalid(&path.child("selector"), shown, "`selector` not auto-generated");
    }
}

/// What a job asks for, but for the selector that it is given; also within a CronJob.
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
    max_failed_indexes(errors, path, spec);
    completion_mode(errors, path, spec);
    if let Some(policy) = spec.get("podFailurePolicy") {
        failure_policy(errors, &path.child("podFailurePolicy"), policy, spec);
    }
    let replacement = spec.str("podReplacementPolicy");
    let replacements: &[&str] = if spec.get("podFailurePolicy").is_some() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if !replacement.is_empty() && !replacements.contains(&replacement) {
        errors.not_supported(&path.child("podReplacementPolicy"), replacement, replacements);
    }
    template(errors, path, spec);
}

fn max_failed_indexes(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    non_negative(errors, path, spec, "maxFailedIndexes");
    let number = |name| spec.get(name).and_then(Ref::as_i64);
    let at = path.child("maxFailedIndexes");
    if number("maxFailedIndexes").is_some() && number("backoffLimitPerIndex").is_none() {
        errors.required(
            &path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if let (Some(failed), Some(completions)) = (number("maxFailedIndexes"), number("completions"))
        && failed > completions
    {
        errors.invalid(&at, failed, "must be less than or equal to completions");
    }
}

fn completion_mode(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let number = |name| spec.get(name).and_then(Ref::as_i64);
    match spec.str("completionMode") {
        "" | "NonIndexed" => {
            if number("backoffLimitPerIndex").is_some() {
                let at = path.child("backoffLimitPerIndex");
                let shown = number("backoffLimitPerIndex").unwrap_or_default();
                errors.invalid(&at, shown, "requires indexed completion mode");
            }
        }
        "Indexed" => {
            let parallelism = number("parallelism").unwrap_or_default();
            if number("completions").is_none() {
                let detail = "when completion mode is Indexed";
                errors.required(&path.child("completions"), detail);
            }
            if parallelism > MAX_PARALLELISM_INDEXED {
                let detail = format!(
                    "must be less than or equal to {MAX_PARALLELISM_INDEXED} when completion mode is Indexed"
                );
                errors.invalid(&path.child("parallelism"), parallelism, detail);
            }
        }
        other => errors.not_supported(&path.child("completionMode"), other, &["NonIndexed", "Indexed"]),
    }
}

fn failure_policy(errors: &mut Errors, path: &Path<'_>, policy: Ref<'_>, spec: Ref<'_>) {
    let rules = path.child("rules");
    if policy.list("rules").len() > MAX_FAILURE_RULES {
        errors.too_many(&rules, policy.list("rules").len(), MAX_FAILURE_RULES);
    }
    for (index, rule) in policy.list("rules").enumerate() {
        let at = rules.index(index);
        failure_action(errors, &at, rule, spec);
        match (rule.get("onExitCodes"), rule.list("onPodConditions").len()) {
            (None, 0) => errors.invalid(
                &at,
                machinery_meta::field::Shown(rule.to_json()),
                "specifying one of OnExitCodes and OnPodConditions is required",
            ),
            (Some(_), 1..) => errors.invalid(
                &at,
                machinery_meta::field::Shown(rule.to_json()),
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (Some(codes), 0) => exit_codes(errors, &at.child("onExitCodes"), codes, spec),
            (None, 1..) => {}
        }
    }
}

fn failure_action(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>, spec: Ref<'_>) {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    match rule.str("action") {
        "" => errors.required(
            &path.child("action"),
            "valid values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"",
        ),
        "FailIndex" if spec.get("backoffLimitPerIndex").is_none() => {
            errors.invalid(
                &path.child("action"),
                "FailIndex",
                "requires the backoffLimitPerIndex to be set",
            );
        }
        action if !actions.contains(&action) => {
            errors.not_supported(&path.child("action"), action, &actions);
        }
        _ => {}
    }
}

fn exit_codes(errors: &mut Errors, path: &Path<'_>, codes: Ref<'_>, spec: Ref<'_>) {
    let operators = ["In", "NotIn"];
    let operator = codes.str("operator");
    if operator.is_empty() {
        errors.required(&path.child("operator"), "valid values: \"In\", \"NotIn\"");
    } else if !operators.contains(&operator) {
        errors.not_supported(&path.child("operator"), operator, &operators);
    }
    let name = codes.str("containerName");
    let names = |list| {
        spec.at(&["template", "spec"])
            .into_iter()
            .flat_map(move |spec| spec.list(list))
    };
    let exists = names("containers")
        .chain(names("initContainers"))
        .any(|own| own.str("name") == name);
    if !name.is_empty() && !exists {
        errors.invalid(
            &path.child("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let values = path.child("values");
    if codes.list("values").len() == 0 {
        errors.invalid(
            &values,
            machinery_meta::field::Shown("[]".into()),
            "at least one value is required",
        );
    }
    for (index, value) in codes.list("values").enumerate() {
        if operator == "In" && value.as_i64() == Some(0) {
            errors.invalid(&values.index(index), 0i64, "must not be 0 for the In operator");
        }
    }
}

fn selector(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let selector = present(spec, "selector");
    match selector {
        None => errors.required(&path.child("selector"), ""),
        Some(selector) => label_selector(errors, &path.child("selector"), selector),
    }
    if let (Some(selector), Some(template)) = (parse_label_selector(selector), spec.get("template")) {
        template_labels_match(errors, &path.child("template"), &selector, template);
    }
}

fn template(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        return;
    };
    pod::validate_template(errors, &at, template);
    let spec_path = at.child("spec");
    let policy = template.str_at(&["spec", "restartPolicy"]);
    match policy {
        "" | "Always" => {
            errors.required(
                &spec_path.child("restartPolicy"),
                "valid values: \"OnFailure\", \"Never\"",
            );
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&spec_path.child("restartPolicy"), other, &["OnFailure", "Never"]),
    }
    if spec.get("podFailurePolicy").is_some() && policy != "Never" {
        errors.invalid(
            &spec_path.child("restartPolicy"),
            policy,
            "only \"Never\" is supported when podFailurePolicy is specified",
        );
    }
}
