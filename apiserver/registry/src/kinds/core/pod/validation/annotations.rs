//! Annotations that mean something to a pod: some are older than the fields that replaced them, and must agree with those.

use super::paths::descending_path;
use super::visit::visit;
use crate::kinds::core::pod::app_armor::{self, PREFIX as APP_ARMOR};
use crate::shared::validation::{Errors, Path};
use machinery_schema::Ref;
use std::collections::HashSet;

/// The copy of a static pod, which only its node makes.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The annotations of an object with metadata and the spec of a pod (`path` is that of its annotations).
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>) {
    if let Some(value) = get(object, MIRROR).filter(|_| object.str_at(&["spec", "nodeName"]).is_empty()) {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path.key(MIRROR), value, detail);
    }
    // Upstream wants the form in which it would write the number.
    let cost = |text: &str| text.parse::<i32>().is_ok_and(|number| number.to_string() == text);
    if let Some(value) = get(object, DELETION_COST).filter(|text| !cost(text)) {
        errors.invalid(&path.key(DELETION_COST), value, "must be a 32bit integer");
    }
    for (key, value) in all(object) {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(errors, &path.child(key), value);
        }
    }
    let mut names = HashSet::new();
    if let Some(spec) = object.get("spec") {
        visit(&Path::ROOT, spec, |_, own| {
            names.insert(own.str("name"));
        });
    }
    for (key, value) in all(object) {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            apparmor(errors, &path.key(key), &names, container, value);
        }
    }
}

fn all(object: Ref<'_>) -> impl Iterator<Item = (&str, &str)> {
    let annotations = object
        .at(&["metadata", "annotations"])
        .into_iter()
        .flat_map(Ref::entries);
    annotations.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

fn get<'a>(object: Ref<'a>, key: &str) -> Option<&'a str> {
    object.at(&["metadata", "annotations", key]).and_then(Ref::as_str)
}

fn seccomp(errors: &mut Errors, path: &Path<'_>, profile: &str) {
    match profile.strip_prefix("localhost/") {
        _ if ["runtime/default", "docker/default", "unconfined"].contains(&profile) => {}
        Some(file) => descending_path(errors, path, file),
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

fn apparmor(errors: &mut Errors, path: &Path<'_>, names: &HashSet<&str>, container: &str, profile: &str) {
    if !names.contains(container) {
        errors.invalid(path, container, "container not found");
    }
    let known = ["", "runtime/default", "unconfined"].contains(&profile);
    if !known && !profile.starts_with("localhost/") {
        errors.invalid(
            path,
            profile,
            format!("invalid AppArmor profile name: {profile:?}"),
        );
    }
}

/// Refuses changes of annotations that are immutable.
pub(super) fn changed(errors: &mut Errors, pod: Ref<'_>, old: Ref<'_>) {
    let metadata = Path::of("metadata");
    let path = metadata.child("annotations");
    let what = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ => key.starts_with(APP_ARMOR).then_some("AppArmor annotations"),
    };
    for (key, was) in all(old) {
        if let Some(what) = what(key).filter(|_| get(pod, key) != Some(was)) {
            errors.forbidden(&path.key(key), &format!("may not remove or update {what}"));
        }
    }
    for (key, _) in all(pod) {
        if let Some(what) = what(key).filter(|_| get(old, key).is_none()) {
            errors.forbidden(&path.key(key), &format!("may not add {what}"));
        }
    }
}

/// Seccomp profiles given both ways are the same.
pub(super) fn match_seccomp(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>) {
    let context = path.child("securityContext");
    let own = object.at(&["spec", "securityContext", "seccompProfile"]);
    if let (Some(text), Some(profile)) = (get(object, SECCOMP_POD), own) {
        same_profile(errors, &context.child("seccompProfile"), text, profile, "seccomp");
    }
    if let Some(spec) = object.get("spec") {
        visit(path, spec, |path, container| {
            let key = format!("{SECCOMP_CONTAINER}{}", container.str("name"));
            let own = container.at(&["securityContext", "seccompProfile"]);
            if let (Some(text), Some(profile)) = (get(object, &key), own) {
                let place = path.child("securityContext.seccompProfile");
                same_profile(errors, &place, text, profile, "seccomp");
            }
        });
    }
}

/// AppArmor profiles given both ways are the same; a container without its own has the pod's.
pub(super) fn match_apparmor(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>) {
    let spec = object.get("spec");
    let Some(spec) = spec.filter(|_| !app_armor::is_windows(object)) else {
        return;
    };
    let of_pod = spec.at(&["securityContext", "appArmorProfile"]);
    visit(path, spec, |path, container| {
        let key = format!("{APP_ARMOR}{}", container.str("name"));
        let own = container.at(&["securityContext", "appArmorProfile"]).or(of_pod);
        if let (Some(text), Some(profile)) = (get(object, &key), own) {
            let place = path.child("securityContext.appArmorProfile");
            same_profile(errors, &place, text, profile, "apparmor");
        }
    });
}

fn same_profile(errors: &mut Errors, path: &Path<'_>, text: &str, profile: Ref<'_>, what: &str) {
    let same = match profile.str("type") {
        "Unconfined" => text == "unconfined",
        "RuntimeDefault" => text == "runtime/default" || (what == "seccomp" && text == "docker/default"),
        "Localhost" => text.starts_with("localhost/"),
        _ => true,
    };
    let file = text
        .strip_prefix("localhost/")
        .filter(|_| profile.str("type") == "Localhost");
    if !same {
        let detail = format!("{what} type in annotation and field must match");
        errors.forbidden(&path.child("type"), &detail);
    } else if file.is_some_and(|file| profile.str("localhostProfile") != file) {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(&path.child("localhostProfile"), &detail);
    }
}
