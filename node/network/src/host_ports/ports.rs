//! Ports of the node, and where they lead.

use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its number in the header of a packet.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol of a number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// The name that nft writes.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    fn upper(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A port of the node. Those of one protocol and number are neighbours in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortKey {
    pub protocol: Protocol,
    pub port: u16,
    /// `None` is every address of the node.
    pub address: Option<Ipv4Addr>,
}

impl PortKey {
    /// Reports whether some packet matches both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let alike = self.address == other.address || self.address.is_none() || other.address.is_none();
        self.protocol == other.protocol && self.port == other.port && alike
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(f, "{address}:")?;
        }
        write!(f, "{}/{}", self.port, self.protocol.upper())
    }
}

/// Target of a port: a pod's address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    pub address: Ipv4Addr,
    pub port: u16,
}

/// A port of the node that a pod requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPort {
    pub key: PortKey,
    /// The port of the pod.
    pub container_port: u16,
}

/// Ports with where they lead.
pub type Entries = BTreeMap<PortKey, Target>;

/// Entries that may take packets of this port, the port itself among them.
pub(crate) fn overlapping<'a, V>(
    entries: &'a BTreeMap<PortKey, V>,
    key: &'a PortKey,
) -> impl Iterator<Item = (&'a PortKey, &'a V)> {
    let at = |address| PortKey { address, ..*key };
    let all = entries.range(at(None)..=at(Some(Ipv4Addr::BROADCAST)));
    all.filter(|(other, _)| other.overlaps(key))
}

/// Addresses and ports of the node that pods do not get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPortsConfig {
    /// Addresses that the node answers itself although they are the cluster's: no host port reaches them.
    pub reserved_addresses: Vec<Ipv4Net>,
    /// TCP ports of the node's own servers, refused also while no server listens.
    pub node_ports: Vec<u16>,
}
