//! Kinds of the core group, but for pods.

use super::format::{
    NONE, UNKNOWN, condition, containers, first_then_more, int, labels, name, object_age, or, text,
};
use super::{Cell, KindCells, age};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    Some(match (group, plural) {
        ("", "configmaps") => config_map,
        ("", "endpoints") => endpoints,
        ("", "events") => core_event,
        ("events.k8s.io", "events") => event,
        ("", "namespaces") => namespace,
        ("", "nodes") => node,
        ("", "persistentvolumeclaims") => claim,
        ("", "persistentvolumes") => volume,
        ("", "podtemplates") => pod_template,
        ("", "replicationcontrollers") => replication_controller,
        ("", "resourcequotas") => quota,
        ("", "secrets") => secret,
        ("", "serviceaccounts") => name_and_age,
        ("", "componentstatuses") => component_status,
        ("", "services") => service,
        _ => return None,
    })
}

fn component_status(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let healthy = object
        .list("conditions")
        .find(|condition| condition.str("type") == "Healthy");
    let status = match healthy.map(|condition| condition.str("status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |member| healthy.map_or("", |condition| condition.str(member));
    vec![
        name(object),
        status.into(),
        said("message").into(),
        said("error").into(),
    ]
}

pub(super) fn name_and_age(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![name(object), object_age(object, now)]
}

fn config_map(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let count = |field: &str| len(object.get(field));
    vec![
        name(object),
        (count("data") + count("binaryData")).into(),
        object_age(object, now),
    ]
}

fn secret(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        text(object, &["type"]),
        len(object.get("data")).into(),
        object_age(object, now),
    ]
}

/// Number of members or items.
fn len(of: Option<Ref<'_>>) -> i64 {
    of.map_or(0, |of| i64::try_from(of.len()).unwrap_or(i64::MAX))
}

fn namespace(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        text(object, &["status", "phase"]),
        object_age(object, now),
    ]
}

/// The first three addresses with ports, then how many more.
fn endpoints(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let mut all: Vec<String> = Vec::new();
    for subset in object.list("subsets") {
        let addresses = || subset.list("addresses").map(|address| address.str("ip"));
        if subset.list("ports").next().is_none() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in subset.list("ports") {
            let port = int(port, &["port"]);
            all.extend(addresses().map(|ip| host_port(ip, port)));
        }
    }
    vec![
        name(object),
        first_then_more(&all, 3).into(),
        object_age(object, now),
    ]
}

pub(super) fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

fn service(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let spec = |field: &str| object.str_at(&["spec", field]);
    let cluster_ip = object
        .get("spec")
        .and_then(|spec| spec.list("clusterIPs").next())
        .and_then(Ref::as_str)
        .unwrap_or_else(|| spec("clusterIP"));
    let ports: Vec<String> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("ports"))
        .map(|port| {
            let (number, node, protocol) = (
                int(port, &["port"]),
                int(port, &["nodePort"]),
                port.str("protocol"),
            );
            if node > 0 {
                format!("{number}:{node}/{protocol}")
            } else {
                format!("{number}/{protocol}")
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        NONE.to_owned()
    } else {
        ports.join(",")
    };
    vec![
        name(object),
        spec("type").into(),
        or(cluster_ip, NONE).into(),
        external_ip(object).into(),
        ports.into(),
        object_age(object, now),
        labels(object.at(&["spec", "selector"])).into(),
    ]
}

fn external_ip(object: Ref<'_>) -> String {
    let listed: Vec<&str> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("externalIPs"))
        .filter_map(Ref::as_str)
        .collect();
    match object.str_at(&["spec", "type"]) {
        "ExternalName" => object.str_at(&["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let ingress = object
                .at(&["status", "loadBalancer"])
                .into_iter()
                .flat_map(|lb| lb.list("ingress"));
            let mut all: Vec<&str> = ingress
                .map(|i| {
                    if i.str("ip").is_empty() {
                        i.str("hostname")
                    } else {
                        i.str("ip")
                    }
                })
                .collect();
            all.sort_unstable();
            all.dedup();
            all.extend(listed);
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",")
            }
        }
        _ if listed.is_empty() => NONE.into(),
        _ => listed.join(","),
    }
}

fn node(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let info = |field: &str| or(object.str_at(&["status", "nodeInfo", field]), UNKNOWN).into();
    let address = |kind: &str| -> Cell {
        let mut all = object
            .get("status")
            .into_iter()
            .flat_map(|status| status.list("addresses"));
        all.find(|a| a.str("type") == kind)
            .map_or(NONE, |a| a.str("address"))
            .into()
    };
    vec![
        name(object),
        node_status(object).into(),
        node_roles(object).into(),
        object_age(object, now),
        text(object, &["status", "nodeInfo", "kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel(object).into(),
        info("containerRuntimeVersion"),
    ]
}

/// The kernel, and the machine it is for where that is known.
fn kernel(object: Ref<'_>) -> String {
    let info = |field: &str| object.str_at(&["status", "nodeInfo", field]);
    let kernel = or(info("kernelVersion"), UNKNOWN);
    match info("architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    }
}

fn node_status(object: Ref<'_>) -> String {
    let ready = condition(object, "Ready");
    let mut words = vec![match ready.map(|c| c.str("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object.at(&["spec", "unschedulable"]).and_then(Ref::as_bool) == Some(true) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn node_roles(object: Ref<'_>) -> String {
    let mut roles: Vec<&str> = object
        .at(&["metadata", "labels"])
        .into_iter()
        .flat_map(Ref::entries)
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some("") => None,
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()),
                None => None,
            },
        )
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.into()
    } else {
        roles.join(",")
    }
}

/// `RWO,ROX`.
fn access_modes(object: Option<Ref<'_>>) -> String {
    let mut modes: Vec<&str> = object
        .into_iter()
        .flat_map(Ref::items)
        .filter_map(Ref::as_str)
        .collect();
    modes.dedup();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let known = short
        .iter()
        .filter(|(long, _)| modes.contains(long))
        .map(|(_, short)| *short);
    known.collect::<Vec<_>>().join(",")
}

fn storage_class<'a>(object: Ref<'a>) -> &'a str {
    let annotated = object.str_at(&[
        "metadata",
        "annotations",
        "volume.beta.kubernetes.io/storage-class",
    ]);
    or(annotated, object.str_at(&["spec", "storageClassName"]))
}

fn claim(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let bound = !object.str_at(&["spec", "volumeName"]).is_empty();
    let deleting = !object.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    let phase = if deleting {
        "Terminating"
    } else {
        object.str_at(&["status", "phase"])
    };
    let (mut capacity, mut modes) = (String::new(), String::new());
    if bound {
        modes = access_modes(object.at(&["status", "accessModes"]));
        or(object.str_at(&["status", "capacity", "storage"]), "0").clone_into(&mut capacity);
    }
    vec![
        name(object),
        phase.into(),
        text(object, &["spec", "volumeName"]),
        capacity.into(),
        modes.into(),
        storage_class(object).into(),
        or(
            object.str_at(&["spec", "volumeAttributesClassName"]),
            super::format::UNSET,
        )
        .into(),
        object_age(object, now),
        or(object.str_at(&["spec", "volumeMode"]), super::format::UNSET).into(),
    ]
}

fn volume(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let claim = object.at(&["spec", "claimRef"]);
    let claim = claim.map_or_else(String::new, |c| {
        format!("{}/{}", c.str("namespace"), c.str("name"))
    });
    let deleting = !object.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    let phase = if deleting {
        "Terminating"
    } else {
        object.str_at(&["status", "phase"])
    };
    vec![
        name(object),
        text(object, &["spec", "capacity", "storage"]),
        access_modes(object.at(&["spec", "accessModes"])).into(),
        text(object, &["spec", "persistentVolumeReclaimPolicy"]),
        phase.into(),
        claim.into(),
        storage_class(object).into(),
        or(
            object.str_at(&["spec", "volumeAttributesClassName"]),
            super::format::UNSET,
        )
        .into(),
        text(object, &["status", "reason"]),
        object_age(object, now),
        or(object.str_at(&["spec", "volumeMode"]), super::format::UNSET).into(),
    ]
}

fn pod_template(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["template", "spec"]));
    vec![
        name(object),
        names.into(),
        images.into(),
        labels(object.at(&["template", "metadata", "labels"])).into(),
    ]
}

fn replication_controller(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["spec", "template", "spec"]));
    vec![
        name(object),
        int(object, &["spec", "replicas"]).into(),
        int(object, &["status", "replicas"]).into(),
        int(object, &["status", "readyReplicas"]).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        labels(object.at(&["spec", "selector"])).into(),
    ]
}

fn quota(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = object.at(&["status", "hard"]).into_iter().flat_map(Ref::entries);
    for (resource, amount) in hard {
        let used = or(object.str_at(&["status", "used", resource]), "0");
        let shown = format!("{resource}: {used}/{}", amount.as_str().unwrap_or_default());
        if resource.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    vec![
        name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        object_age(object, now),
    ]
}

fn since(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        UNKNOWN.into()
    } else {
        age(text, now)
    }
}

/// Names of an event's members, which its two versions spell differently.
struct EventNames {
    regarding: &'static str,
    note: &'static str,
    count: &'static str,
    first: &'static str,
    last: &'static str,
    source: &'static str,
    controller: &'static str,
}

fn core_event(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let names = EventNames {
        regarding: "involvedObject",
        note: "message",
        count: "count",
        first: "firstTimestamp",
        last: "lastTimestamp",
        source: "source",
        controller: "reportingComponent",
    };
    event_cells(object, now, &names)
}

fn event(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let names = EventNames {
        regarding: "regarding",
        note: "note",
        count: "deprecatedCount",
        first: "deprecatedFirstTimestamp",
        last: "deprecatedLastTimestamp",
        source: "deprecatedSource",
        controller: "reportingController",
    };
    event_cells(object, now, &names)
}

fn event_cells(object: Ref<'_>, now: Timestamp, names: &EventNames) -> Vec<Cell> {
    let event_time = object.str("eventTime");
    let first = or(object.str(names.first), event_time);
    let series = object.get("series").map(|series| series.str("lastObservedTime"));
    let last = series.unwrap_or_else(|| or(object.str(names.last), first));
    let count = match object.at(&["series", "count"]).and_then(Ref::as_i64) {
        Some(count) => count,
        None => int(object, &[names.count]).max(1),
    };
    let regarding = object.get(names.regarding);
    let member = |field: &str| regarding.map_or("", |r| r.str(field));
    let target = if member("name").is_empty() {
        member("kind").to_lowercase()
    } else {
        format!("{}/{}", member("kind").to_lowercase(), member("name"))
    };
    vec![
        since(last, now).into(),
        text(object, &["type"]),
        text(object, &["reason"]),
        target.into(),
        member("fieldPath").into(),
        event_source(object, names).into(),
        object.str(names.note).trim().into(),
        since(first, now).into(),
        count.into(),
        name(object),
    ]
}

fn event_source(object: Ref<'_>, names: &EventNames) -> String {
    let component = or(
        object.str_at(&[names.source, "component"]),
        object.str(names.controller),
    );
    let host = or(
        object.str_at(&[names.source, "host"]),
        object.str("reportingInstance"),
    );
    let parts: Vec<&str> = [component, host]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(", ")
}
