//! Validation of a Job's policies: failed pods (`podFailurePolicy`) and success (`successPolicy`).

use super::indexes;
use crate::shared::validation::{Errors, Path, non_negative, present, qualified};
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use std::collections::HashSet;

/// Rules that either policy may have.
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_POD_CONDITIONS: usize = 20;
const MAX_INDEXES_BYTES: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Every problem of a pod failure policy; `spec` is the job's.
pub(super) fn failure(errors: &mut Errors, path: &Path<'_>, policy: Ref<'_>, spec: Ref<'_>) {
    let rules = path.child("rules");
    too_many(errors, &rules, policy.list("rules").len(), MAX_RULES);
    let containers = containers(spec);
    for (index, rule) in policy.list("rules").enumerate() {
        let at = rules.index(index);
        action(errors, &at.child("action"), rule.str("action"), spec);
        let (codes, conditions) = (rule.get("onExitCodes"), rule.list("onPodConditions").len());
        if let Some(codes) = codes {
            exit_codes(errors, &at.child("onExitCodes"), codes, &containers);
        }
        pod_conditions(errors, &at.child("onPodConditions"), rule);
        match (codes, conditions) {
            (None, 0) => {
                errors.invalid_unshown(
                    &at,
                    "specifying one of OnExitCodes and OnPodConditions is required",
                );
            }
            (Some(_), 1..) => errors.invalid_unshown(
                &at,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (Some(_), 0) | (None, 1..) => {}
        }
    }
}

fn too_many(errors: &mut Errors, path: &Path<'_>, actual: usize, max: usize) {
    if actual > max {
        errors.too_many(path, actual, max);
    }
}

fn action(errors: &mut Errors, path: &Path<'_>, action: &str, spec: Ref<'_>) {
    match action {
        "FailIndex" if spec.get("backoffLimitPerIndex").is_none() => {
            errors.invalid(path, action, "requires the backoffLimitPerIndex to be set");
        }
        _ => required_one_of(errors, path, action, &ACTIONS),
    }
}

/// One of a few; upstream shows them as Go prints a list where none is given.
fn required_one_of(errors: &mut Errors, path: &Path<'_>, value: &str, known: &[&str]) {
    if value.is_empty() {
        let listed: Vec<String> = known.iter().map(|own| format!("{own:?}")).collect();
        errors.required(path, &format!("valid values: [{}]", listed.join(" ")));
    } else if !known.contains(&value) {
        errors.not_supported(path, value, known);
    }
}

fn pod_conditions(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    too_many(
        errors,
        path,
        rule.list("onPodConditions").len(),
        MAX_POD_CONDITIONS,
    );
    for (index, pattern) in rule.list("onPodConditions").enumerate() {
        let at = path.index(index);
        qualified(errors, &at.child("type"), pattern.str("type"));
        required_one_of(errors, &at.child("status"), pattern.str("status"), &STATUSES);
    }
}

fn exit_codes(errors: &mut Errors, path: &Path<'_>, codes: Ref<'_>, containers: &HashSet<&str>) {
    let operator = codes.str("operator");
    required_one_of(errors, &path.child("operator"), operator, &OPERATORS);
    if let Some(name) = codes.get("containerName").and_then(Ref::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), name, detail);
    }
    let at = path.child("values");
    let values: Vec<i64> = codes.list("values").filter_map(Ref::as_i64).collect();
    if values.is_empty() {
        errors.invalid(&at, Shown("[]".into()), "at least one value is required");
    }
    too_many(errors, &at, values.len(), MAX_EXIT_CODES);
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(&at.index(index), *value, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(&at.index(index), *value);
        }
    }
    if !values.is_sorted() {
        let shown = codes.get("values").map(Ref::to_json).unwrap_or_default();
        errors.invalid(&at, Shown(shown), "must be ordered");
    }
}

fn containers(spec: Ref<'_>) -> HashSet<&str> {
    let pod = spec.at(&["template", "spec"]);
    ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.into_iter().flat_map(move |pod| pod.list(list)))
        .map(|container| container.str("name"))
        .collect()
}

/// Every problem of a success policy; `spec` is the job's, which is indexed.
pub(super) fn success(errors: &mut Errors, path: &Path<'_>, policy: Ref<'_>, spec: Ref<'_>) {
    let rules = path.child("rules");
    let count = policy.list("rules").len();
    if count == 0 {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&rules, detail);
    }
    too_many(errors, &rules, count, MAX_RULES);
    let completions = spec.get("completions").and_then(Ref::as_i64).unwrap_or_default();
    for (index, rule) in policy.list("rules").enumerate() {
        success_rule(errors, &rules.index(index), rule, completions);
    }
}

fn success_rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>, completions: i64) {
    let count = rule.get("succeededCount").and_then(Ref::as_i64);
    let named = present(rule, "succeededIndexes").and_then(Ref::as_str);
    if count.is_none() && named.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(path, detail);
    }
    let total = named.map(|named| {
        let at = path.child("succeededIndexes");
        if named.len() > MAX_INDEXES_BYTES {
            errors.too_long(&at, MAX_INDEXES_BYTES);
        }
        indexes::count(named, completions).unwrap_or_else(|error| {
            errors.invalid(&at, named, format!("error parsing succeededIndexes: {error}"));
            0
        })
    });
    non_negative(errors, path, rule, "succeededCount");
    let limits = [
        (Some(completions), "specified completions"),
        (total, "indexes in the specified succeededIndexes field"),
    ];
    for (limit, of) in limits {
        if let (Some(count), Some(limit)) = (count, limit)
            && count > limit
        {
            let detail = format!("must be less than or equal to {limit} (the number of {of})");
            errors.invalid(&path.child("succeededCount"), count, detail);
        }
    }
}
