//! Columns of Services in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, int, labels, name, object_age, or};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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
