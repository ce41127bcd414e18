//! Facts of the cluster for nodes that join, written at each start.

use super::arguments::ServerArguments;
use super::identities::local_url;
use crate::join::{self, ClusterFacts};
use cluster::Cluster;
use ipnet::IpNet;
use std::net::SocketAddr;

/// Writes it; a server that cannot goes on, and nodes read what an earlier start has written.
pub(super) async fn publish(cluster: &Cluster, arguments: &ServerArguments, bound: SocketAddr) {
    let server = cluster.server();
    let url = local_url(SocketAddr::new(server.advertised_address(), bound.port()));
    let authority = server.pki().cluster.certificate_pem();
    let facts = facts(arguments);
    if let Err(error) = join::publish(&cluster.admin(), facts.as_ref(), &url, authority).await {
        tracing::warn!(%error, "writing what joining nodes have to know failed");
    }
}

/// `None` where the ranges are not of IPv4, which nodes of ours need.
fn facts(arguments: &ServerArguments) -> Option<ClusterFacts> {
    let of_four = |range: IpNet| match range {
        IpNet::V4(own) => Some(own),
        IpNet::V6(_) => None,
    };
    Some(ClusterFacts {
        cluster_domain: arguments.cluster_domain.clone(),
        cluster_cidr: of_four(arguments.controllers.cluster_cidr)?,
        service_cluster_ip_range: of_four(arguments.service_cluster_ip_range)?,
    })
}
