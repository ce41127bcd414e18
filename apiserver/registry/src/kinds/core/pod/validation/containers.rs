//! Containers, init containers and ephemeral ones.

use super::paths::descending_path;
use super::ports::{PROTOCOLS, port_number};
use super::volumes::Known;
use super::{environment, probes, resources, restart, security};
use crate::shared::validation::{Errors, Path, dns_label, one_of, present};
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashSet;

/// Members that an ephemeral container may not have.
const NOT_EPHEMERAL: [&str; 6] = [
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resources",
];

/// All containers of a spec.
pub fn validate_all(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, known: &Known<'_>) {
    let mut names = HashSet::new();
    regular(errors, &path.child("containers"), spec, known, &mut names);
    init(errors, &path.child("initContainers"), spec, known, &mut names);
    ephemeral(
        errors,
        &path.child("ephemeralContainers"),
        spec,
        known,
        &mut names,
    );
}

fn regular<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: Ref<'a>,
    known: &Known<'_>,
    names: &mut HashSet<&'a str>,
) {
    let containers = spec.list("containers");
    if containers.len() == 0 {
        errors.required(path, "");
    }
    for (index, container) in containers.enumerate() {
        let at = path.index(index);
        common(errors, &at, container, spec, known);
        if !names.insert(container.str("name")) {
            errors.duplicate(&at.child("name"), container.str("name"));
        }
        probes::validate_all(errors, &at, container, spec);
        restart::rules(errors, &at, container);
    }
    host_port_conflicts(errors, path, spec.list("containers"));
}

fn init<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: Ref<'a>,
    known: &Known<'_>,
    names: &mut HashSet<&'a str>,
) {
    for (index, container) in spec.list("initContainers").enumerate() {
        let at = path.index(index);
        common(errors, &at, container, spec, known);
        restart::rules(errors, &at, container);
        let sidecar = container.str("restartPolicy") == "Always";
        if !names.insert(container.str("name")) {
            errors.duplicate(&at.child("name"), container.str("name"));
        }
        host_port_conflicts(errors, &at, std::iter::once(container));
        if sidecar {
            probes::validate_all(errors, &at, container, spec);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(name).is_some() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(&at.child(name), detail);
                }
            }
        }
        if !sidecar {
            restart::never(errors, &at.child("resizePolicy"), container);
        }
    }
}

fn ephemeral<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: Ref<'a>,
    known: &Known<'_>,
    names: &mut HashSet<&'a str>,
) {
    // None of its own kind.
    let regular = ["containers", "initContainers"].into_iter();
    let targets = regular.flat_map(|list| spec.list(list).map(|container| container.str("name")));
    let targets: HashSet<&str> = targets.collect();
    for (index, container) in spec.list("ephemeralContainers").enumerate() {
        let at = path.index(index);
        common(errors, &at, container, spec, known);
        let name = container.str("name");
        if !names.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        let target = container.str("targetContainerName");
        if !target.is_empty() && !targets.contains(target) {
            errors.not_found(&at.child("targetContainerName"), target);
        }
        for forbidden in NOT_EPHEMERAL {
            if container.get(forbidden).is_some_and(|value| !value.is_empty()) {
                errors.forbidden(&at.child(forbidden), "cannot be set for an Ephemeral Container");
            }
        }
        let mounts = at.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").enumerate() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.str(name).is_empty() {
                    let mount_path = mounts.index(index);
                    errors.forbidden(
                        &mount_path.child(name),
                        "cannot be set for an Ephemeral Container",
                    );
                }
            }
        }
    }
}

fn common(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>, spec: Ref<'_>, known: &Known<'_>) {
    let name = container.str("name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        dns_label(errors, &path.child("name"), name);
    }
    if container.str("image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    one_of(
        errors,
        path,
        container,
        "terminationMessagePolicy",
        &policies,
        Some(""),
    );
    ports(errors, &path.child("ports"), container);
    environment::validate(errors, path, container);
    mounts(errors, &path.child("volumeMounts"), container, known);
    devices(errors, &path.child("volumeDevices"), container, known);
    one_of(
        errors,
        path,
        container,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        Some(""),
    );
    if let Some(requirements) = container.get("resources") {
        resources::validate_container(errors, &path.child("resources"), requirements, spec, known);
    }
    resources::resize_policy(errors, &path.child("resizePolicy"), container, spec);
    if let Some(context) = container.get("securityContext") {
        let host_users = spec.get("hostUsers").and_then(Ref::as_bool) != Some(false);
        security::validate_container(errors, &path.child("securityContext"), context, host_users);
    }
}

fn ports(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>) {
    let mut names = HashSet::new();
    for (index, port) in container.list("ports").enumerate() {
        let at = path.index(index);
        let name = port.str("name");
        if !name.is_empty() {
            let problems = syntax::port_name(name);
            if problems.is_empty() && !names.insert(name) {
                errors.duplicate(&at.child("name"), name);
            }
            errors.all_invalid(&at.child("name"), name, problems);
        }
        let number = |field| port.get(field).and_then(Ref::as_i64).unwrap_or_default();
        if number("containerPort") == 0 {
            errors.required(&at.child("containerPort"), "");
        } else {
            port_number(errors, &at.child("containerPort"), number("containerPort"));
        }
        if number("hostPort") != 0 {
            port_number(errors, &at.child("hostPort"), number("hostPort"));
        }
        one_of(errors, &at, port, "protocol", &PROTOCOLS, Some(""));
    }
}

fn host_port_conflicts<'a>(errors: &mut Errors, path: &Path<'_>, containers: impl Iterator<Item = Ref<'a>>) {
    let mut taken = HashSet::new();
    for (index, container) in containers.enumerate() {
        let at = path.index(index);
        let ports = at.child("ports");
        for (index, port) in container.list("ports").enumerate() {
            let number = port.get("hostPort").and_then(Ref::as_i64).unwrap_or_default();
            if number == 0 {
                continue;
            }
            let key = (port.str("protocol"), port.str("hostIP"), number);
            if !taken.insert(key) {
                let shown = if key.1.is_empty() {
                    format!("{}//{number}", key.0)
                } else {
                    format!("{}/{}/{number}", key.0, key.1)
                };
                let port_path = ports.index(index);
                errors.duplicate(&port_path.child("hostPort"), shown);
            }
        }
    }
}

fn mounts(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>, known: &Known<'_>) {
    let mut points = HashSet::new();
    let of_devices = |field: &'static str| -> HashSet<&str> {
        container
            .list("volumeDevices")
            .map(|own| own.str(field))
            .collect()
    };
    let (device_names, device_points) = (of_devices("name"), of_devices("devicePath"));
    for (index, mount) in container.list("volumeMounts").enumerate() {
        let at = path.index(index);
        let (name, point) = (mount.str("name"), mount.str("mountPath"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if !known.has_volume(name) {
            errors.not_found(&at.child("name"), name);
        }
        if point.is_empty() {
            errors.required(&at.child("mountPath"), "");
        }
        if !points.insert(point) {
            errors.invalid(&at.child("mountPath"), point, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_points.contains(point) {
            errors.invalid(
                &at.child("mountPath"),
                point,
                "must not already exist as a path in volumeDevices",
            );
        }
        sub_paths(errors, path, &at, mount);
        propagation(errors, &path.child("mountPropagation"), mount, container);
        recursive_read_only(errors, path, mount);
    }
}

/// Upstream reports these on the list, not on the mount.
fn sub_paths(errors: &mut Errors, list: &Path<'_>, at: &Path<'_>, mount: Ref<'_>) {
    let (path, expression) = (mount.str("subPath"), mount.str("subPathExpr"));
    if !path.is_empty() {
        descending_path(errors, &list.child("subPath"), path);
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&at.child("subPathExpr"), expression, detail);
        }
        descending_path(errors, &list.child("subPathExpr"), expression);
    }
}

/// Upstream reports these on the list, too.
fn recursive_read_only(errors: &mut Errors, list: &Path<'_>, mount: Ref<'_>) {
    const NAME: &str = "recursiveReadOnly";
    one_of(
        errors,
        list,
        mount,
        NAME,
        &["Disabled", "Enabled", "IfPossible"],
        None,
    );
    if !["Enabled", "IfPossible"].contains(&mount.str(NAME)) {
        return;
    }
    if mount.get("readOnly").and_then(Ref::as_bool) != Some(true) {
        errors.forbidden(&list.child(NAME), "may only be specified when readOnly is true");
    }
    if !["", "None"].contains(&mount.str("mountPropagation")) {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.forbidden(&list.child(NAME), detail);
    }
}

fn propagation(errors: &mut Errors, path: &Path<'_>, mount: Ref<'_>, container: Ref<'_>) {
    let Some(mode) = present(mount, "mountPropagation").and_then(Ref::as_str) else {
        return;
    };
    let modes = ["Bidirectional", "HostToContainer", "None"];
    if !modes.contains(&mode) {
        errors.not_supported(path, mode, &modes);
    }
    let privileged = container
        .at(&["securityContext", "privileged"])
        .and_then(Ref::as_bool);
    if mode == "Bidirectional" && privileged != Some(true) {
        errors.forbidden(
            path,
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
}

fn devices(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>, known: &Known<'_>) {
    let (mut names, mut points) = (HashSet::new(), HashSet::new());
    for (index, device) in container.list("volumeDevices").enumerate() {
        let at = path.index(index);
        let (name, point) = (device.str("name"), device.str("devicePath"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if !names.insert(name) {
            errors.invalid(&at.child("name"), name, "must be unique");
        }
        if !known.has_volume(name) {
            errors.not_found(&at.child("name"), name);
        } else if !known.is_claim(name) {
            errors.invalid(
                &at.child("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            );
        }
        if point.is_empty() {
            errors.required(&at.child("devicePath"), "");
        }
        if !points.insert(point) {
            errors.invalid(&at.child("devicePath"), point, "must be unique");
        }
        if !point.is_empty() && point.split('/').any(|part| part == "..") {
            errors.invalid(&at.child("devicePath"), point, "can not contain backsteps ('..')");
        }
    }
}
