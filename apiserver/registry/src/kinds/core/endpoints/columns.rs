//! Columns of Endpoints in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{first_then_more, int, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// The first three addresses with ports, then how many more.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}
