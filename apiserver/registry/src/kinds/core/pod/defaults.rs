//! Defaults of a pod that depend on its other fields; pod templates share most of them.

use machinery_schema::{Mut, Ref, Tree, Value};
use machinery_semantics::image_names::default_pull_policy;

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.enableServiceLinks=true"];

/// Defaults only a pod itself has.
pub(crate) fn pod(object: &mut Tree) {
    object.with(&["spec"], |mut spec| {
        requests_from_limits(&mut spec);
        at_least_a_second(&mut spec);
    });
    let first = object
        .get("status")
        .and_then(|status| status.list("podIPs").next())
        .map_or(String::new(), |own| own.str("ip").to_owned());
    let ip = object.str_at(&["status", "podIP"]).to_owned();
    if ip.is_empty() && !first.is_empty() {
        object.set_str(&["status", "podIP"], &first);
    } else if !ip.is_empty() && ip != first {
        // The older field says which address is meant; the list begins with it.
        object.with(&["status"], |mut status| {
            status.remove("podIPs");
            let mut list = status.entry("podIPs");
            list.push(Value::EmptyMap).set("ip", ip.as_str());
        });
    }
}

/// Annotations in which pods had their init containers before there was a field.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
];

/// Drops old annotations of a pod or of a template, whose metadata this is, as upstream's conversions do.
pub(crate) fn metadata(metadata: &mut Mut<'_>) {
    let Some(mut annotations) = metadata.field("annotations") else {
        return;
    };
    let mut is_changed = false;
    for name in INIT_CONTAINER_ANNOTATIONS {
        is_changed |= annotations.remove(name);
    }
    if is_changed && annotations.as_ref().is_empty() {
        metadata.remove("annotations");
    }
}

/// Sets defaults of a pod's spec, also in a template.
pub(crate) fn spec(spec: &mut Mut<'_>) {
    let host_network = spec.as_ref().get("hostNetwork").and_then(Ref::as_bool) == Some(true);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        spec.each(list, |mut container| {
            image_pull_policy(&mut container);
            probes(&mut container);
            if host_network {
                container.each("ports", |mut port| host_port(&mut port));
            }
        });
    }
    service_account(spec);
    volumes(spec);
}

/// `Always` for images that may move, else `IfNotPresent`.
fn image_pull_policy(container: &mut Mut<'_>) {
    let policy = default_pull_policy(container.as_ref().str("image"));
    container.default("imagePullPolicy", policy);
}

fn probes(container: &mut Mut<'_>) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(mut probe) = container.field(name) {
            http_get(&mut probe);
        }
    }
    if let Some(mut lifecycle) = container.field("lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(mut handler) = lifecycle.field(name) {
                http_get(&mut handler);
            }
        }
    }
}

fn http_get(handler: &mut Mut<'_>) {
    if let Some(mut get) = handler.field("httpGet") {
        get.default("path", "/");
        get.default("scheme", "HTTP");
    }
}

/// Sets the host's port, which on the host's network is the container's.
fn host_port(port: &mut Mut<'_>) {
    let own = port
        .as_ref()
        .get("containerPort")
        .and_then(Ref::as_i64)
        .unwrap_or(0);
    let set = port.as_ref().get("hostPort").and_then(Ref::as_i64).unwrap_or(0) != 0;
    if !set && own != 0 {
        port.set("hostPort", own);
    }
}

/// Keeps both spellings of the service account.
fn service_account(spec: &mut Mut<'_>) {
    let (new, old) = {
        let spec = spec.as_ref();
        (
            spec.str("serviceAccountName").to_owned(),
            spec.str("serviceAccount").to_owned(),
        )
    };
    if new.is_empty() && !old.is_empty() {
        spec.set("serviceAccountName", old.as_str());
    } else if !new.is_empty() {
        spec.set("serviceAccount", new.as_str());
    }
}

/// A volume without a source is an emptyDir.
fn volumes(spec: &mut Mut<'_>) {
    spec.each("volumes", |mut volume| {
        let has_source = volume
            .as_ref()
            .entries()
            .any(|(name, value)| name != "name" && !value.is_null());
        if !has_source {
            volume.set("emptyDir", Value::EmptyMap);
        }
    });
}

/// A negative grace period once meant the least there is.
fn at_least_a_second(spec: &mut Mut<'_>) {
    const GRACE: &str = "terminationGracePeriodSeconds";
    if spec
        .as_ref()
        .get(GRACE)
        .and_then(Ref::as_i64)
        .is_some_and(|seconds| seconds < 0)
    {
        spec.set(GRACE, 1_i64);
    }
}

/// A limit without a request is the request as well.
fn requests_from_limits(spec: &mut Mut<'_>) {
    for list in ["containers", "initContainers"] {
        spec.each(list, |mut container| {
            let missing: Vec<(String, String)> = {
                let resources = container.as_ref().get("resources");
                let request = |name: &str| resources.and_then(|r| r.at(&["requests", name])).is_some();
                let limits = resources.and_then(|r| r.get("limits"));
                let all = limits.into_iter().flat_map(Ref::entries);
                all.filter(|(name, _)| !request(name))
                    .map(|(name, value)| (name.to_owned(), value.as_str().unwrap_or_default().to_owned()))
                    .collect()
            };
            for (name, value) in missing {
                container
                    .entry("resources")
                    .entry("requests")
                    .set(&name, value.as_str());
            }
        });
    }
}
