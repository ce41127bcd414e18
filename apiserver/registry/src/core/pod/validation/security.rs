//! Security contexts.

use super::containers::descending_path;
use crate::validation::{Errors, Path, one_of};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;

const FS_GROUP_POLICIES: [&str; 2] = ["Always", "OnRootMismatch"];
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// The pod's security context and what it shares with the host.
pub fn validate_pod(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let flag = |name| spec.get(name).and_then(Ref::as_bool) == Some(true);
    let at = path.child("securityContext");
    if let Some(context) = spec.get("securityContext") {
        for name in ["fsGroup", "runAsUser", "runAsGroup"] {
            id(errors, &at.child(name), context.get(name).and_then(Ref::as_i64));
        }
        let groups = at.child("supplementalGroups");
        for (index, group) in context.list("supplementalGroups").enumerate() {
            id(errors, &groups.index(index), group.as_i64());
        }
        sysctls(errors, &at.child("sysctls"), context);
        one_of(
            errors,
            &at,
            context,
            "fsGroupChangePolicy",
            &FS_GROUP_POLICIES,
            None,
        );
        one_of(
            errors,
            &at,
            context,
            "supplementalGroupsPolicy",
            &["Merge", "Strict"],
            None,
        );
        profile(errors, &at.child("seccompProfile"), context.get("seccompProfile"));
        profile(
            errors,
            &at.child("appArmorProfile"),
            context.get("appArmorProfile"),
        );
    }
    if flag("shareProcessNamespace") && flag("hostPID") {
        errors.invalid(
            &at.child("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    if spec.get("hostUsers").and_then(Ref::as_bool) == Some(false) {
        // Upstream spells two of the paths as in Go.
        for (name, told) in [
            ("hostNetwork", "hostNetwork"),
            ("hostPID", "HostPID"),
            ("hostIPC", "HostIPC"),
        ] {
            if flag(name) {
                errors.forbidden(&path.child(told), "when `hostUsers` is false");
            }
        }
    }
}

fn id(errors: &mut Errors, path: &Path<'_>, id: Option<i64>) {
    if let Some(id) = id {
        for problem in syntax::user_id(id) {
            errors.invalid(path, id, problem);
        }
    }
}

fn sysctls(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>) {
    let mut seen = Vec::new();
    for (index, sysctl) in context.list("sysctls").enumerate() {
        let at = path.index(index);
        let name = sysctl.str("name");
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&at.child("name"), name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.push(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            part.starts_with(plain)
                && part.ends_with(plain)
                && part.chars().all(|c| plain(c) || c == '-' || c == '_')
        })
}

fn profile(errors: &mut Errors, path: &Path<'_>, profile: Option<Ref<'_>>) {
    let Some(profile) = profile else { return };
    let (kind, local) = (
        profile.str("type"),
        profile.get("localhostProfile").and_then(Ref::as_str),
    );
    let local_path = path.child("localhostProfile");
    match (kind, local) {
        ("Localhost", None | Some("")) => {
            errors.required(&local_path, "must be set when seccomp type is Localhost");
        }
        ("Localhost", Some(file)) => descending_path(errors, &local_path, file),
        ("", _) => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        (other, _) if !PROFILES.contains(&other) => {
            errors.not_supported(&path.child("type"), other, &PROFILES);
        }
        (_, Some(file)) => {
            errors.invalid(
                &local_path,
                file,
                "can only be set when seccomp type is Localhost",
            );
        }
        _ => {}
    }
}

/// A container's security context.
pub fn validate_container(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>) {
    for name in ["runAsUser", "runAsGroup"] {
        id(errors, &path.child(name), context.get(name).and_then(Ref::as_i64));
    }
    one_of(errors, path, context, "procMount", &["Default", "Unmasked"], None);
    profile(
        errors,
        &path.child("seccompProfile"),
        context.get("seccompProfile"),
    );
    profile(
        errors,
        &path.child("appArmorProfile"),
        context.get("appArmorProfile"),
    );
    let flag = |name| context.get(name).and_then(Ref::as_bool);
    if flag("allowPrivilegeEscalation") != Some(false) {
        return;
    }
    let shown = || Shown(context.to_json());
    if flag("privileged") == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, shown(), detail);
    }
    let added = context
        .get("capabilities")
        .into_iter()
        .flat_map(|all| all.list("add"));
    for _ in added.filter(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, shown(), detail);
    }
}
