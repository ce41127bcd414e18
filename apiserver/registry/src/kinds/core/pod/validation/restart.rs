//! Validation of restarts: a container's own policy, and rules by exit code.

use crate::shared::validation::{Errors, Path, present};
use machinery_schema::Ref;

/// Rules of restarting that a container may have, and exit codes that each may name.
const MAX_RESTART_RULES: usize = 20;
const MAX_RESTART_CODES: usize = 255;

/// A container's own restart policy, and the rules that come with it (KEP-5307).
pub(super) fn rules(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>) {
    let given = present(container, "restartPolicy").and_then(Ref::as_str);
    let policies = ["Always", "Never", "OnFailure"];
    if let Some(policy) = given.filter(|policy| !policies.contains(policy)) {
        errors.not_supported(&path.child("restartPolicy"), policy, &policies);
    }
    let count = container.list("restartPolicyRules").len();
    if given.is_none() && count > 0 {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(&path.child("restartPolicy"), detail);
    }
    let rules = path.child("restartPolicyRules");
    if count > MAX_RESTART_RULES {
        errors.too_many(&rules, count, MAX_RESTART_RULES);
    }
    for (index, rule) in container.list("restartPolicyRules").enumerate() {
        self::rule(errors, &rules.index(index), rule);
    }
}

fn rule(errors: &mut Errors, path: &Path<'_>, rule: Ref<'_>) {
    let actions = ["Restart", "RestartAllContainers"];
    if !actions.contains(&rule.str("action")) {
        errors.not_supported(&path.child("action"), rule.str("action"), &actions);
    }
    let at = path.child("exitCodes");
    let Some(codes) = rule.get("exitCodes") else {
        return errors.required(&at, "must be specified");
    };
    if !["In", "NotIn"].contains(&codes.str("operator")) {
        errors.not_supported(&at.child("operator"), codes.str("operator"), &["In", "NotIn"]);
    }
    let count = codes.list("values").len();
    if count > MAX_RESTART_CODES {
        errors.too_many(&at.child("values"), count, MAX_RESTART_CODES);
    }
}

/// Refuses `RestartContainer` in the resize policy of a container that runs once.
pub(super) fn never(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>) {
    for (index, policy) in container.list("resizePolicy").enumerate() {
        if policy.str("restartPolicy") == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.invalid(
                &path.index(index).child("restartPolicy"),
                "RestartContainer",
                detail,
            );
        }
    }
}
