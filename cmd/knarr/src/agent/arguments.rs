//! Flags of `knarr agent`, and what follows from them.

use crate::agent_cni;
use crate::config_file::ConfigArguments;
use crate::join::{self, JoinArguments};
use crate::node_arguments::NodeArguments;
use clap::Args;
use ipnet::Ipv4Net;
use node_network::third_party::PluginFolders;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The cluster's DNS server has the tenth address of the services' range, as everywhere.
const DNS_ADDRESS_INDEX: usize = 10;

/// Flags of `knarr agent`; names are the kubelet's where it has them.
#[derive(Args, Debug, Clone)]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,
    /// Data directory of the agent
    #[arg(long, default_value = "/var/lib/knarr/agent")]
    pub(super) data_dir: PathBuf,
    /// Kubeconfig for the API server, as system:node:NAME [default: kubeconfig in the data directory]
    #[arg(long)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The cluster's DNS domain
    #[arg(long, default_value = "cluster.local")]
    pub(super) cluster_domain: String,
    /// Addresses of all pods
    #[arg(long, default_value = "10.244.0.0/16")]
    pub(super) cluster_cidr: Ipv4Net,
    /// Addresses of all services
    #[arg(long, default_value = "10.96.0.0/16")]
    pub(super) service_cluster_ip_range: Ipv4Net,
    /// The authenticated port
    #[arg(long, default_value_t = 10250)]
    pub(super) port: u16,
    /// The loopback health port; 0 is none
    #[arg(long, default_value_t = 10248)]
    pub(super) healthz_port: u16,
    /// Serving certificate [default: kubelet.crt in the data directory, else one of its own making]
    #[arg(long, requires = "tls_private_key_file")]
    pub(super) tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file
    #[arg(long)]
    pub(super) tls_private_key_file: Option<PathBuf>,
    /// Bundle of authorities of client certificates [default: client-ca.crt in the data directory]
    #[arg(long)]
    pub(super) client_ca_file: Option<PathBuf>,
    /// States of upstream's feature gates, comma separated, repeatable: Name=true or Name=false; a gate is refused in a state that
    /// the agent does not have
    #[arg(long, value_delimiter = ',', value_name = "GATE=BOOL")]
    pub(super) feature_gates: Vec<String>,
    #[command(flatten, next_help_heading = "Joining a cluster")]
    pub(super) join: JoinArguments,
    #[command(flatten, next_help_heading = "Node")]
    pub(super) node: NodeArguments,
}

impl AgentArguments {
    /// The node that joins.
    pub(super) fn own_node(&self) -> join::Node {
        join::Node {
            name: self.node_name(),
            folder: self.data_dir.clone(),
            kubeconfig: self.kubeconfig(),
        }
    }

    /// The name that is given, or the host's in lower case.
    pub(super) fn node_name(&self) -> String {
        let host = || node_sys::machine::Machine::observe().hostname.to_lowercase();
        self.node.hostname_override.clone().unwrap_or_else(host)
    }

    /// Addresses of the cluster's DNS server.
    pub(super) fn cluster_dns(&self) -> Vec<Ipv4Addr> {
        if self.node.cluster_dns.is_empty() {
            return self
                .service_cluster_ip_range
                .hosts()
                .nth(DNS_ADDRESS_INDEX - 1)
                .into_iter()
                .collect();
        }
        self.node.cluster_dns.clone()
    }

    /// Folder of the agent's own CNI configuration.
    pub(super) fn cni_config_dir(&self) -> PathBuf {
        self.data_dir.join("cni")
    }

    /// Resolver configuration that pods and DNS take over.
    pub(super) fn resolv_conf(&self) -> PathBuf {
        let usual = || node_kubelet::containers::dns::host_resolv_conf(Path::new("/"));
        self.node.resolv_conf.clone().unwrap_or_else(usual)
    }

    /// The kubeconfig that is given, or the one of the data directory.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        let own = || self.data_dir.join("kubeconfig");
        self.kubeconfig.clone().unwrap_or_else(own)
    }

    /// The runtime knows one folder of plugins; ours are in one that the agent writes, and other programs install theirs beside the machine's.
    pub(super) fn plugin_folders(&self) -> PluginFolders {
        PluginFolders {
            // Ours first: the loopback link, too, is made without another program's start.
            from: std::iter::once(agent_cni::folder(&self.data_dir))
                .chain(self.node.cni_bin_dir.iter().cloned())
                .collect(),
            links: self.data_dir.join("cni-plugins"),
        }
    }
}
