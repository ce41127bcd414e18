//! Validation of ResourceQuotas.

use crate::shared::validation::{
    Errors, Path, is_quota_resource, present, quota_resource_name, resource_amount,
};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Scopes, and those among them that may have the operator `Exists` alone.
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "CrossNamespacePodAffinity",
    "PriorityClass",
    "VolumeAttributesClass",
];
const ONLY_EXISTS: usize = 5;

/// Scopes that exclude each other.
const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

/// Resources that bound pods, beside their number.
const OF_PODS: [&str; 6] = [
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

/// Every problem of a new quota.
pub fn validate(quota: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    validate_spec(&mut errors, quota);
    errors.into_list()
}

/// Every problem of a changed one, whose scopes stay.
pub fn validate_update(quota: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    validate_spec(&mut errors, quota);
    let scopes = |quota| -> BTreeSet<String> { scopes(quota).map(str::to_owned).collect() };
    if scopes(quota) != scopes(old) {
        let path = Path::of("spec");
        errors.invalid(&path.child("scopes"), shown_scopes(quota), "field is immutable");
    }
    errors.into_list()
}

/// Every problem of a status.
pub fn validate_status(quota: Ref<'_>, _: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status");
    amounts(&mut errors, &path.child("hard"), quota.at(&["status", "hard"]));
    amounts(&mut errors, &path.child("used"), quota.at(&["status", "used"]));
    errors.into_list()
}

fn validate_spec(errors: &mut Errors, quota: Ref<'_>) {
    let path = Path::of("spec");
    amounts(errors, &path.child("hard"), quota.at(&["spec", "hard"]));
    plain_scopes(errors, &path.child("scopes"), quota);
    if let Some(selector) = quota.get("spec").and_then(|spec| present(spec, "scopeSelector")) {
        let path = path.child("scopeSelector");
        selected_scopes(errors, &path.child("matchExpressions"), quota, selector);
    }
}

fn amounts(errors: &mut Errors, path: &Path<'_>, list: Option<Ref<'_>>) {
    for (name, value) in list.into_iter().flat_map(Ref::entries) {
        let at = path.key(name);
        quota_resource_name(errors, &at, name);
        resource_amount(errors, &at, name, value);
    }
}

fn scopes<'a>(quota: Ref<'a>) -> impl Iterator<Item = &'a str> {
    let spec = quota.get("spec");
    let scopes = spec.into_iter().flat_map(|spec| spec.list("scopes"));
    scopes.map(|scope| scope.as_str().unwrap_or_default())
}

fn shown_scopes(quota: Ref<'_>) -> Shown {
    let given = quota.get("spec").and_then(|spec| present(spec, "scopes"));
    Shown(given.map_or_else(|| "null".to_owned(), Ref::to_json))
}

/// Numbers of the quota's resources that each scope cannot select, counted once for each.
struct Unsuited<'a> {
    quota: Ref<'a>,
    counted: BTreeMap<String, usize>,
}

impl<'a> Unsuited<'a> {
    fn of(quota: Ref<'a>) -> Self {
        let counted = BTreeMap::new();
        Self { quota, counted }
    }

    fn count(&mut self, scope: &str) -> usize {
        if !SCOPES.contains(&scope) {
            return 0;
        }
        let count = || {
            let hard = self
                .quota
                .at(&["spec", "hard"])
                .into_iter()
                .flat_map(Ref::entries);
            let names = hard.map(|(name, _)| name).filter(|name| is_quota_resource(name));
            names.filter(|name| !suits(scope, name)).count()
        };
        *self.counted.entry(scope.to_owned()).or_insert_with(count)
    }
}

fn suits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => resource == "pods" || OF_PODS.contains(&resource),
    }
}

fn plain_scopes(errors: &mut Errors, path: &Path<'_>, quota: Ref<'_>) {
    let (mut seen, mut unsuited) = (BTreeSet::new(), Unsuited::of(quota));
    for scope in scopes(quota) {
        if !SCOPES.contains(&scope) {
            invalid_scopes(errors, path, quota, "unsupported scope");
        }
        for _ in 0..unsuited.count(scope) {
            invalid_scopes(errors, path, quota, "unsupported scope applied to resource");
        }
        seen.insert(scope);
    }
    conflicts(errors, path, quota, &seen);
}

/// A problem of all scopes, which are shown only where there is room.
fn invalid_scopes(errors: &mut Errors, path: &Path<'_>, quota: Ref<'_>, detail: &str) {
    errors.note(|| FieldError::invalid(&path.to_path(), shown_scopes(quota), detail));
}

fn selected_scopes(errors: &mut Errors, path: &Path<'_>, quota: Ref<'_>, selector: Ref<'_>) {
    let (mut seen, mut unsuited) = (BTreeSet::new(), Unsuited::of(quota));
    for requirement in selector.list("matchExpressions") {
        let scope = requirement.str("scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..unsuited.count(scope) {
            let detail = "unsupported scope applied to resource";
            errors.note(|| FieldError::invalid(&path.to_path(), shown_selector(selector), detail));
        }
        operator(errors, path, requirement);
        seen.insert(scope);
    }
    conflicts(errors, path, quota, &seen);
}

fn operator(errors: &mut Errors, path: &Path<'_>, requirement: Ref<'_>) {
    let operator = requirement.str("operator");
    let at = path.child("operator");
    if SCOPES[..ONLY_EXISTS].contains(&requirement.str("scopeName")) && operator != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid(&at, operator, detail);
    }
    let values = requirement.list("values").len();
    match operator {
        "In" | "NotIn" if values == 0 => errors.required(
            &path.child("values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if values != 0 => {
            let given = requirement.get("values").map(Ref::to_json).unwrap_or_default();
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&path.child("values"), Shown(given), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&at, other, "not a valid selector operator"),
    }
}

fn conflicts(errors: &mut Errors, path: &Path<'_>, quota: Ref<'_>, seen: &BTreeSet<&str>) {
    for (one, other) in CONFLICTS {
        if seen.contains(one) && seen.contains(other) {
            invalid_scopes(errors, path, quota, "conflicting scopes");
        }
    }
}

/// The selector by the names of Go's fields, as upstream shows its internal form.
fn shown_selector(selector: Ref<'_>) -> Shown {
    let requirement = |own: Ref<'_>| {
        let values = |_| own.list("values").filter_map(Ref::as_str).collect();
        let values: Option<Vec<&str>> = present(own, "values").map(values);
        let (scope, operator) = (json!(own.str("scopeName")), json!(own.str("operator")));
        format!(
            r#"{{"ScopeName":{scope},"Operator":{operator},"Values":{}}}"#,
            json!(values)
        )
    };
    let all: Vec<String> = selector.list("matchExpressions").map(requirement).collect();
    Shown(format!(r#"{{"MatchExpressions":[{}]}}"#, all.join(",")))
}
