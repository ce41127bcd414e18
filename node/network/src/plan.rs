//! Plan of the network of a node, from all Node objects.

use crate::cni::{NETWORK, PLUGIN};
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

/// The plan for one node among all. No Node object leads packets astray that are none of pods' ([`is_of_pods`]), nor those of a
/// range that another node has: the first by name has it, this node before all others.
pub fn plan<'a>(config: &NetworkConfig, nodes: impl Iterator<Item = (&'a str, &'a NodeView)>) -> Plan {
    let mut plan = Plan::default();
    let mut own = None;
    let nodes: BTreeMap<&str, &NodeView> = nodes.collect();
    for (name, node) in nodes {
        let Some(pods) = node
            .pod_cidr
            .filter(|pods| is_of_pods(config.cluster_cidr, *pods))
        else {
            continue;
        };
        if name == config.node_name {
            plan.conflist = Some(conflist(config, pods));
            plan.rules = Some(rules(config.cluster_cidr, pods));
            own = Some(pods);
        } else if let Some(address) = node.internal_ip.filter(|own| !config.cluster_cidr.contains(own)) {
            let taken = plan.routes.range(..=last_within(pods)).next_back();
            if taken.is_none_or(|(other, _)| !overlap(*other, pods)) {
                plan.routes.insert(pods, address);
            }
        }
    }
    plan.routes
        .retain(|pods, _| own.is_none_or(|own| !overlap(own, *pods)));
    plan
}

/// Reports whether a range is a part of the cluster's addresses of pods.
fn is_of_pods(cluster: Ipv4Net, pods: Ipv4Net) -> bool {
    cluster.contains(&pods) && pods.prefix_len() > cluster.prefix_len()
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// The greatest range, in their order, that may overlap this one.
fn last_within(pods: Ipv4Net) -> Ipv4Net {
    Ipv4Net::from(pods.broadcast())
}

/// A routed link for every pod, and an address of the node's own range.
///
/// The node has a route to each pod over that pod's own link, so that packets between pods of one node pass
/// the node's rules as all else does, whatever `br_netfilter` is set to, and no pod receives another's ARP.
fn conflist(config: &NetworkConfig, pods: Ipv4Net) -> String {
    let mut link = json!({"type": PLUGIN, "subnet": pods.to_string()});
    if let Some(mtu) = config.mtu {
        link["mtu"] = mtu.into();
    }
    let all = json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [link]});
    format!("{all:#}\n")
}

/// Pods' packets to the world leave with the node's address; those to other pods keep their own. A packet from a
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
    use crate::third_party::PluginFolders;

    fn config() -> NetworkConfig {
        NetworkConfig {
            node_name: "here".to_owned(),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            cni_config_dir: "/c".into(),
            third_party_config_dir: "/t".into(),
            plugins: PluginFolders {
                from: Vec::new(),
                links: "/l".into(),
            },
            is_enabled: true,
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
        assert_eq!(conflist["plugins"][0]["subnet"], "10.244.0.0/24");
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

    #[track_caller]
    fn check_routes(nodes: &[(&str, &str, &str)], expected: &[(&str, &str)]) {
        let views: Vec<_> = nodes
            .iter()
            .map(|(name, pods, address)| (*name, node(pods, address)))
            .collect();
        let plan = plan(&config(), views.iter().map(|(name, view)| (*name, view)));
        let found = plan
            .routes
            .iter()
            .map(|(pods, via)| (pods.to_string(), via.to_string()));
        let expected = expected
            .iter()
            .map(|(pods, via)| ((*pods).to_owned(), (*via).to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    /// A range is what a Node object says: no node gets the world's packets, the server's, or another node's pods' by it.
    #[test]
    fn routes_lead_to_pods_alone_and_to_one_node_each() {
        let good = ("there", "10.244.1.0/24", "1.1.1.2");
        let of_good = [("10.244.1.0/24", "1.1.1.2")];
        for pods in [
            "0.0.0.0/0",
            "1.1.1.1/32",
            "10.244.0.0/16",
            "10.0.0.0/8",
            "10.96.0.0/24",
        ] {
            check_routes(&[good, ("zed", pods, "6.6.6.6")], &of_good);
        }
        check_routes(&[("zed", "10.244.2.0/24", "10.244.9.9")], &[]);
        let own = ("here", "10.244.0.0/24", "1.1.1.1");
        check_routes(&[("a", "10.244.0.128/25", "6.6.6.6"), own, good], &of_good);
        for taken in ["10.244.1.0/24", "10.244.1.7/32", "10.244.0.0/23"] {
            check_routes(&[good, ("zed", taken, "6.6.6.6")], &of_good);
        }
        check_routes(
            &[good, ("zed", "10.244.2.0/24", "6.6.6.6")],
            &[of_good[0], ("10.244.2.0/24", "6.6.6.6")],
        );
    }

    #[test]
    fn routes_without_range_are_not_written() {
        let own = node("", "1.1.1.1");
        assert_eq!(plan(&config(), [("here", &own)].into_iter()), Plan::default());
    }
}
