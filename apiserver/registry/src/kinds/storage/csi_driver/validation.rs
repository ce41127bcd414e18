//! Validation of CSIDrivers.

use crate::shared::validation::{Errors, Path, immutable, present};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use std::collections::HashSet;

const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const MODES: [&str; 2] = ["Persistent", "Ephemeral"];
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
const MIN_PERIOD_SECONDS: i64 = 10;
const PERIOD: &str = "nodeAllocatableUpdatePeriodSeconds";
const IN_SECRETS: &str = "serviceAccountTokenInSecrets";

/// Every problem of a new driver.
pub(super) fn validate(driver: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = driver.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let policy = present(spec, "fsGroupPolicy").and_then(Ref::as_str);
    if let Some(policy) = policy.filter(|policy| !GROUP_POLICIES.contains(policy)) {
        errors.not_supported(&path.child("fsGroupPolicy"), policy, &GROUP_POLICIES);
    }
    token_requests(&mut errors, &path.child("tokenRequests"), spec);
    let modes = path.child("volumeLifecycleModes");
    for mode in spec.list("volumeLifecycleModes").filter_map(Ref::as_str) {
        if !MODES.contains(&mode) {
            errors.not_supported(&modes, mode, &MODES);
        }
    }
    period(&mut errors, &path.child(PERIOD), spec);
    let in_secrets = present(spec, IN_SECRETS).and_then(Ref::as_bool);
    if in_secrets.is_some() && spec.list("tokenRequests").len() == 0 {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&path.child(IN_SECRETS), in_secrets, detail);
    }
    errors.into_list()
}

fn period(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let seconds = spec.get(PERIOD).and_then(Ref::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < MIN_PERIOD_SECONDS) {
        errors.invalid(path, seconds, "must be greater than or equal to 10 seconds");
    }
}

/// Every problem of a changed driver: attachment and lifecycle modes are immutable.
pub(super) fn validate_update(driver: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate(driver));
    // Upstream names the one by another path.
    for (member, shown) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        let of = |object: Ref<'_>| object.at(&["spec", member]).map(Ref::to_json);
        if of(driver) != of(old) {
            let path = Path::of("spec");
            let new = driver.at(&["spec", member]);
            let old = old.at(&["spec", member]);
            immutable(&mut errors, &path.child(shown), new, old, "field is immutable");
        }
    }
    errors.into_list()
}

/// A driver gets one token for each audience.
fn token_requests(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut audiences = HashSet::new();
    for (index, request) in spec.list("tokenRequests").enumerate() {
        let at = path.index(index);
        let audience = request.str("audience");
        if !audiences.insert(audience) {
            errors.duplicate(&at.child("audience"), audience);
            continue;
        }
        let at = at.child("expirationSeconds");
        match request.get("expirationSeconds").and_then(Ref::as_i64) {
            Some(seconds) if seconds < MIN_TOKEN_SECONDS => {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(&at, seconds, detail);
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(&at, seconds, detail);
            }
            _ => {}
        }
    }
}
