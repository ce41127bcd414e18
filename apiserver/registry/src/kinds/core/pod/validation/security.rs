//! Security contexts.

use super::paths::descending_path;
use crate::kinds::core::pod::app_armor;
use crate::shared::validation::{Errors, Path, one_of};
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::BTreeSet;

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
        sysctls(errors, &at.child("sysctls"), context, spec);
        one_of(
            errors,
            &at,
            context,
            "fsGroupChangePolicy",
            &FS_GROUP_POLICIES,
            None,
        );
        seccomp_profile(errors, &at.child("seccompProfile"), context.get("seccompProfile"));
        app_armor::validate(errors, &at, context);
        let groups = ["Merge", "Strict"];
        one_of(errors, &at, context, "supplementalGroupsPolicy", &groups, None);
        let relabel = ["MountOption", "Recursive"];
        one_of(errors, &at, context, "seLinuxChangePolicy", &relabel, None);
    }
    if flag("shareProcessNamespace") && flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, detail);
    }
}

/// Refuses namespaces of the host in a pod with a user namespace of its own; upstream writes two of the paths as Go
/// does.
pub fn host_users(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let flag = |name| spec.get(name).and_then(Ref::as_bool);
    if flag("hostUsers") != Some(false) {
        return;
    }
    for (name, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(name) == Some(true) {
            errors.forbidden(&path.child(shown), "when `hostUsers` is false");
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

fn sysctls(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>, spec: Ref<'_>) {
    let mut seen = BTreeSet::new();
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
        let flag = namespace_flag(name);
        if let Some(flag) = flag.filter(|flag| spec.get(flag).and_then(Ref::as_bool) == Some(true)) {
            let detail = format!("may not be specified when '{flag}' is true");
            errors.invalid(&at.child("name"), name, detail);
        }
        seen.insert(name);
    }
}

/// The member of the spec by which a pod would set this for its host too.
fn namespace_flag(sysctl: &str) -> Option<&'static str> {
    // With a slash first, slashes separate and dots belong to names.
    let slashed = sysctl
        .find(['.', '/'])
        .is_some_and(|at| sysctl[at..].starts_with('/'));
    let name = if slashed {
        sysctl.replace('/', ".")
    } else {
        sysctl.to_owned()
    };
    let of = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if of(&["net."]) {
        Some("hostNetwork")
    } else if name == "kernel.sem" || of(&["kernel.shm", "kernel.msg", "fs.mqueue."]) {
        Some("hostIPC")
    } else {
        None
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

fn seccomp_profile(errors: &mut Errors, path: &Path<'_>, profile: Option<Ref<'_>>) {
    let Some(profile) = profile else { return };
    let local = profile.get("localhostProfile").and_then(Ref::as_str);
    let at = path.child("localhostProfile");
    match profile.str("type") {
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        other if !PROFILES.contains(&other) => {
            errors.not_supported(&path.child("type"), other, &PROFILES);
        }
        _ => {}
    }
    match (profile.str("type"), local) {
        ("Localhost", None) => errors.required(&at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => descending_path(errors, &at, file),
        (_, Some(_)) => errors.invalid(&at, profile, "can only be set when seccomp type is Localhost"),
        (_, None) => {}
    }
}

/// A container's security context; `host_users` is whether its users are the host's.
pub fn validate_container(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>, host_users: bool) {
    for name in ["runAsUser", "runAsGroup"] {
        id(errors, &path.child(name), context.get(name).and_then(Ref::as_i64));
    }
    one_of(errors, path, context, "procMount", &["Default", "Unmasked"], None);
    if host_users && context.str("procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.child("procMount"), "Unmasked", detail);
    }
    let profile = context.get("seccompProfile");
    seccomp_profile(errors, &path.child("seccompProfile"), profile);
    escalation(errors, path, context);
    app_armor::validate(errors, path, context);
}

/// Refuses a container that forbids privilege escalation and has full privileges.
fn escalation(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>) {
    let flag = |name| context.get(name).and_then(Ref::as_bool);
    if flag("allowPrivilegeEscalation") != Some(false) {
        return;
    }
    if flag("privileged") == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, context, detail);
    }
    let added = context
        .get("capabilities")
        .into_iter()
        .flat_map(|all| all.list("add"));
    for _ in added.filter(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, context, detail);
    }
}
