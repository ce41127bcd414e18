//! Ports of its node that a pod requests.

use k8s_openapi::api::core::v1::PodSpec;

use crate::resources::is_sidecar;

/// A port of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Empty means every address.
    pub ip: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Box<str>,
    /// Its number.
    pub port: u16,
}

impl HostPort {
    /// The host port of a container's port; `None` where it requests none.
    pub fn new(ip: &str, protocol: &str, port: u16) -> Option<Self> {
        (port > 0).then(|| Self {
            ip: if ip == "0.0.0.0" {
                Box::default()
            } else {
                ip.into()
            },
            protocol: if protocol.is_empty() { "TCP" } else { protocol }.into(),
            port,
        })
    }

    /// The same port of the same protocol on an address that both claim.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip.is_empty() || other.ip.is_empty())
    }
}

/// Host ports of the containers that run together.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| is_sidecar(container));
    let ports = sidecars
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten());
    let host_port = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        let number = port.host_port.and_then(|number| u16::try_from(number).ok())?;
        let (ip, protocol) = (port.host_ip.as_deref(), port.protocol.as_deref());
        HostPort::new(ip.unwrap_or_default(), protocol.unwrap_or_default(), number)
    };
    ports.filter_map(host_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_conflict_on_addresses_that_both_claim() {
        let port = |ip, protocol, port| HostPort::new(ip, protocol, port).unwrap();
        let all = port("0.0.0.0", "", 80);
        assert!(all.conflicts_with(&port("192.0.2.1", "TCP", 80)));
        assert!(!all.conflicts_with(&port("", "UDP", 80)));
        assert!(!all.conflicts_with(&port("", "TCP", 81)));
        assert!(!port("192.0.2.1", "", 80).conflicts_with(&port("192.0.2.2", "", 80)));
        assert_eq!(HostPort::new("", "TCP", 0), None);
    }
}
