//! Plan of the network of a node, from all Node objects.

use crate::config::{NetworkConfig, POD_LINKS};
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
    /// Rules of the kernel, as text for `nft`.
    pub rules: Option<String>,
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
            plan.rules = Some(rules(config.cluster_cidr, pods));
        } else if let Some(address) = node.internal_ip {
            plan.routes.insert(pods, address);
        }
    }
    plan
}

/// A routed link for every pod, and an address of the node's own range.
///
/// The node has a route to each pod over that pod's own link, so that what pods of one node say to each other passes
/// the node's rules as all else does, whatever `br_netfilter` is set to, and no pod hears another's ARP.
fn conflist(config: &NetworkConfig, pods: Ipv4Net) -> String {
    let mut link = json!({
        "type": "ptp",
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": pods.to_string()}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": config.cni_state_dir.to_string_lossy()
        }
    });
    if let Some(mtu) = config.mtu {
        link["mtu"] = mtu.into();
    }
    let all = json!({"cniVersion": "1.0.0", "name": "knarr", "plugins": [link]});
    format!("{all:#}\n")
}

/// Pods' packets to the world leave with the node's address; those to other pods keep their own. What comes from a
/// pod with a source that is not routed to that pod is dropped: its link is the only way back to it.
fn rules(cluster: Ipv4Net, pods: Ipv4Net) -> String {
    let sources = format!(
        " chain sources {{
  type filter hook prerouting priority raw; policy accept;
  iifname \"{POD_LINKS}*\" fib saddr . iif oif missing drop
 }}
"
    );
    format!(
        "\
table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
{sources} chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  ip saddr {pods} ip daddr != {cluster} ip daddr != 224.0.0.0/4 fib daddr type != local masquerade fully-random
 }}
}}
table ip6 {TABLE}
delete table ip6 {TABLE}
table ip6 {TABLE} {{
{sources}}}
"
    )
}

/// Returns the routes to delete and to set, from those present to those planned.
pub fn route_changes(
    present: &BTreeMap<Ipv4Net, Ipv4Addr>,
    wanted: &BTreeMap<Ipv4Net, Ipv4Addr>,
) -> (Vec<Ipv4Net>, Vec<(Ipv4Net, Ipv4Addr)>) {
    let gone = present.keys().filter(|pods| !wanted.contains_key(pods));
    let set = wanted.iter().filter(|(pods, via)| present.get(pods) != Some(via));
    (
        gone.copied().collect(),
        set.map(|(pods, via)| (*pods, *via)).collect(),
    )
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
    fn routes_serve_own_range_and_forward_to_other_nodes() {
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
            plan.rules
                .unwrap()
                .contains("ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/16")
        );
        let (pods, via) = ("10.244.1.0/24".parse().unwrap(), Ipv4Addr::new(1, 1, 1, 2));
        assert_eq!(
            route_changes(&BTreeMap::new(), &plan.routes),
            (vec![], vec![(pods, via)])
        );
        assert_eq!(
            route_changes(&plan.routes, &BTreeMap::new()),
            (vec![pods], vec![])
        );
    }

    #[test]
    fn routes_without_range_are_not_written() {
        let own = node("", "1.1.1.1");
        assert_eq!(plan(&config(), [("here", &own)].into_iter()), Plan::default());
    }
}
