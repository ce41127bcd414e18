//! What the network of a node should be, from what the nodes say.

use crate::config::{BRIDGE, NetworkConfig};
use crate::model::NodeView;
use ipnet::Ipv4Net;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The table; nothing outside it is touched.
pub const TABLE: &str = "knarr-network";
/// Conflists are read in the order of their names; a third-party plugin that wants to win sorts before this one.
pub const CONFLIST: &str = "10-knarr.conflist";

/// Everything that is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// `None` until the node has addresses to give to pods.
    pub conflist: Option<String>,
    pub masquerade: Option<String>,
    /// Pods of other nodes, by whom to pass their packets to.
    pub routes: BTreeMap<Ipv4Net, Ipv4Addr>,
}

/// The plan for one node among all.
pub fn plan<'a>(config: &NetworkConfig, nodes: impl Iterator<Item = (&'a str, &'a NodeView)>) -> Plan {
    let mut plan = Plan::default();
    for (name, node) in nodes {
        let Some(pods) = node.pod_cidr else { continue };
        if name == config.node_name {
            plan.conflist = Some(conflist(config, pods));
            plan.masquerade = Some(masquerade(config.cluster_cidr, pods));
        } else if let Some(address) = node.internal_ip {
            plan.routes.insert(pods, address);
        }
    }
    plan
}

/// A bridge with an address of every node's own range, its default route, and host ports.
fn conflist(config: &NetworkConfig, pods: Ipv4Net) -> String {
    let mut bridge = json!({
        "type": "bridge", "bridge": BRIDGE, "isGateway": true, "hairpinMode": true, "promiscMode": false,
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": pods.to_string()}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": config.cni_state_dir.to_string_lossy()
        }
    });
    if let Some(mtu) = config.mtu {
        bridge["mtu"] = mtu.into();
    }
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": true});
    let all = json!({"cniVersion": "1.0.0", "name": "knarr", "plugins": [bridge, portmap]});
    format!("{all:#}\n")
}

/// Pods' packets to the world leave with the node's address; those to other pods keep their own.
fn masquerade(cluster: Ipv4Net, pods: Ipv4Net) -> String {
    format!(
        "\
table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  ip saddr {pods} ip daddr != {cluster} ip daddr != 224.0.0.0/4 fib daddr type != local masquerade fully-random
 }}
}}
"
    )
}

/// What to do to get from one set of routes to another: those to take away, then those to set.
pub fn route_changes(
    before: &BTreeMap<Ipv4Net, Ipv4Addr>,
    after: &BTreeMap<Ipv4Net, Ipv4Addr>,
) -> Vec<Vec<String>> {
    let gone = before.keys().filter(|pods| !after.contains_key(pods));
    let set = after.iter().filter(|(pods, via)| before.get(pods) != Some(via));
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
    gone.map(|pods| words(&["route", "delete", &pods.to_string()]))
        .chain(
            set.map(|(pods, via)| words(&["route", "replace", &pods.to_string(), "via", &via.to_string()])),
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NetworkConfig {
        NetworkConfig {
            node_name: "here".to_owned(),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            cni_config_dir: "/c".into(),
            cni_state_dir: "/s".into(),
            host_settings: "/h".into(),
            mtu: None,
        }
    }

    fn node(pods: &str, address: &str) -> NodeView {
        NodeView {
            pod_cidr: pods.parse().ok(),
            internal_ip: address.parse().ok(),
        }
    }

    #[test]
    fn a_node_serves_its_own_range_and_passes_on_to_the_others() {
        let (here, there, new) = (
            node("10.244.0.0/24", "1.1.1.1"),
            node("10.244.1.0/24", "1.1.1.2"),
            node("", "1.1.1.3"),
        );
        let nodes = [("here", &here), ("there", &there), ("new", &new)];
        let plan = plan(&config(), nodes.into_iter());
        let conflist: serde_json::Value = serde_json::from_str(plan.conflist.as_deref().unwrap()).unwrap();
        assert_eq!(
            conflist["plugins"][0]["ipam"]["ranges"][0][0]["subnet"],
            "10.244.0.0/24"
        );
        assert!(
            plan.masquerade
                .unwrap()
                .contains("ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/16")
        );
        assert_eq!(
            route_changes(&BTreeMap::new(), &plan.routes),
            [["route", "replace", "10.244.1.0/24", "via", "1.1.1.2"]]
        );
        assert_eq!(
            route_changes(&plan.routes, &BTreeMap::new()),
            [["route", "delete", "10.244.1.0/24"]]
        );
    }

    #[test]
    fn without_a_range_nothing_is_written() {
        let own = node("", "1.1.1.1");
        assert_eq!(plan(&config(), [("here", &own)].into_iter()), Plan::default());
    }
}
