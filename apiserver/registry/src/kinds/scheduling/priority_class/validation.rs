//! Validation of PriorityClasses (upstream's `pkg/apis/scheduling/validation`).

use crate::shared::validation::{Errors, Path, immutable};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Names with this prefix are the system's.
const SYSTEM_PREFIX: &str = "system-";
/// Classes that the system itself creates.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
const HIGHEST_OF_USERS: i64 = 1_000_000_000;

/// Every problem of a new one.
pub fn validate(class: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let name = class.str_at(&["metadata", "name"]);
    let value = class.get("value").and_then(Ref::as_i64).unwrap_or_default();
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(problem) = system_problem(class, name, value) {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
            );
            errors.forbidden(&Path::of("metadata").child("name"), &detail);
        }
    } else if value > HIGHEST_OF_USERS {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
        errors.forbidden(&Path::of("value"), &detail);
    }
    let policies = ["PreemptLowerPriority", "Never"];
    let at = Path::of("preemptionPolicy");
    match class.get("preemptionPolicy").and_then(Ref::as_str) {
        None => {}
        Some("") => errors.required(&at, ""),
        Some(policy) if policies.contains(&policy) => {}
        Some(policy) => errors.not_supported(&at, policy, &policies),
    }
    errors.into_list()
}

fn system_problem(class: Ref<'_>, name: &str, value: i64) -> Option<String> {
    let Some((_, own)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *own {
        return Some(format!("value of {name} PriorityClass must be {own}"));
    }
    let global = class.get("globalDefault").and_then(Ref::as_bool) == Some(true);
    global.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// Pods have copied what it says, so it stays.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let value = |class: Ref<'_>| class.get("value").and_then(Ref::as_i64).unwrap_or_default();
    if value(new) != value(old) {
        errors.forbidden(&Path::of("value"), "may not be changed in an update.");
    }
    let path = Path::of("preemptionPolicy");
    let (after, before) = (new.get("preemptionPolicy"), old.get("preemptionPolicy"));
    immutable(&mut errors, &path, after, before, "field is immutable");
    errors.into_list()
}
