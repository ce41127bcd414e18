//! Fields that a pod for one operating system may not set.

use super::visit::visit;
use crate::shared::validation::{Errors, Path};
use machinery_schema::Ref;

/// Pod fields that Windows does not have, in upstream's order.
const NOT_IN_POD: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const NOT_IN_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
/// Members of the spec, and whether `false` is as good as nothing.
const NOT_IN_SPEC: [(&str, bool); 4] = [
    ("hostUsers", false),
    ("hostPID", true),
    ("hostIPC", true),
    ("shareProcessNamespace", false),
];

/// The system a pod says it is for, and what that rules out.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(os) = spec.get("os") else { return };
    let at = path.child("os");
    match os.str("name") {
        "" => errors.required(&at.child("name"), ""),
        "linux" => linux(errors, path, spec),
        "windows" => windows(errors, path, spec),
        other => errors.not_supported(&at, other, &["linux", "windows"]),
    }
}

fn linux(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut look = |path: &Path<'_>, context: Ref<'_>| {
        if context.get("windowsOptions").is_some() {
            let detail = "windows options cannot be set for a linux pod";
            errors.forbidden(&path.child("windowsOptions"), detail);
        }
    };
    if let Some(context) = spec.get("securityContext") {
        look(&path.child("securityContext"), context);
    }
    each_container_context(path, spec, look);
}

fn windows(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    const DETAIL: &str = "cannot be set for a windows pod";
    if let Some(context) = spec.get("securityContext") {
        let at = path.child("securityContext");
        for name in NOT_IN_POD {
            if context
                .get(name)
                .is_some_and(|value| name != "sysctls" || !value.is_empty())
            {
                errors.forbidden(&at.child(name), DETAIL);
            }
        }
    }
    for (name, false_is_nothing) in NOT_IN_SPEC {
        let value = spec.get(name).and_then(Ref::as_bool);
        if value.is_some_and(|value| value || !false_is_nothing) {
            errors.forbidden(&path.child(name), DETAIL);
        }
    }
    each_container_context(path, spec, |path, context| {
        for name in NOT_IN_CONTAINER {
            if context.get(name).is_some() {
                errors.forbidden(&path.child(name), DETAIL);
            }
        }
    });
}

fn each_container_context(path: &Path<'_>, spec: Ref<'_>, mut look: impl FnMut(&Path<'_>, Ref<'_>)) {
    visit(path, spec, |path, container| {
        if let Some(context) = container.get("securityContext") {
            look(&path.child("securityContext"), context);
        }
    });
}
