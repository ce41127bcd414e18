//! Columns of Ingresses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, first_then_more, name, object_age, or};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let spec = object.get("spec");
    let hosts: Vec<String> = spec
        .into_iter()
        .flat_map(|spec| spec.list("rules"))
        .map(|rule| rule.str("host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let shown = if hosts.is_empty() {
        "*".to_owned()
    } else {
        first_then_more(&hosts, 3)
    };
    let balancer = object
        .at(&["status", "loadBalancer"])
        .into_iter()
        .flat_map(|lb| lb.list("ingress"));
    let mut addresses: Vec<&str> = balancer
        .map(|own| {
            if own.str("ip").is_empty() {
                own.str("hostname")
            } else {
                own.str("ip")
            }
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let secure = spec.is_some_and(|spec| spec.list("tls").next().is_some());
    vec![
        name(object),
        or(object.str_at(&["spec", "ingressClassName"]), NONE).into(),
        shown.into(),
        addresses.join(",").into(),
        if secure { "80, 443" } else { "80" }.into(),
        object_age(object, now),
    ]
}
