//! Read model of nodes for the pod network.

use ipnet::Ipv4Net;
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::net::Ipv4Addr;

/// A node's addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeView {
    pub pod_cidr: Option<Ipv4Net>,
    pub internal_ip: Option<Ipv4Addr>,
}

impl Projection for NodeView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Node {
            spec: Spec,
            status: Status,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Spec {
            #[serde(rename = "podCIDR")]
            pod_cidr: Box<str>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Status {
            addresses: Vec<Address>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Address {
            #[serde(rename = "type")]
            type_: Box<str>,
            address: Box<str>,
        }
        let node: Node = machinery_client::json::from_slice(json)?;
        let internal = node
            .status
            .addresses
            .iter()
            .filter(|one| &*one.type_ == "InternalIP");
        Ok(Self {
            pod_cidr: node.spec.pod_cidr.parse().ok(),
            internal_ip: internal.filter_map(|one| one.address.parse().ok()).next(),
        })
    }
}
