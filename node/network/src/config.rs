//! Configuration of the pod network.

use crate::third_party::PluginFolders;
use ipnet::Ipv4Net;
use std::path::PathBuf;

/// Names of the node's ends of pods' links begin so, as those that CNI's `ptp` makes.
pub const POD_LINKS: &str = "veth";

/// Addresses and folders of this node's pod network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    pub node_name: String,
    /// Addresses of all pods of the cluster; what goes elsewhere gets the node's address.
    pub cluster_cidr: Ipv4Net,
    /// The folder that the container runtime reads network configurations from.
    pub cni_config_dir: PathBuf,
    /// The folder in which other programs install theirs.
    pub third_party_config_dir: PathBuf,
    /// Plugins of all networks.
    pub plugins: PluginFolders,
    /// False where another program brings the network in any case.
    pub is_enabled: bool,
    /// File with the host's settings before the agent changed them.
    pub host_settings: PathBuf,
    /// Of pods' links; `None` leaves it to the kernel.
    pub mtu: Option<u32>,
}

/// Host facts that the network needs and sets: file below `/proc/sys`, value, and whether pods could do without.
pub const SYSCTLS: [(&str, &str, bool); 2] = [
    ("net/ipv4/ip_forward", "1", false),
    // Pods of an agent that still had a bridge send ARP requests on it for the addresses of newer ones.
    ("net/ipv4/conf/cni0/proxy_arp", "1", true),
];
