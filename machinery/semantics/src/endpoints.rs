//! Endpoints of a service: pods, their states and their ports.

use k8s_openapi::api::core::v1::{Container, PodSpec, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::IpAddr;

/// The three conditions of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointState {
    /// New connections may go there.
    pub ready: bool,
    /// It answers, whether or not it is being deleted.
    pub serving: bool,
    /// It is being deleted.
    pub terminating: bool,
}

impl EndpointState {
    /// State of a pod's endpoint; `publish` is the service's `publishNotReadyAddresses`.
    pub fn of_pod(pod_ready: bool, deleting: bool, publish: bool) -> Self {
        Self {
            ready: publish || (pod_ready && !deleting),
            serving: pod_ready,
            terminating: deleting,
        }
    }
}

/// Reports whether traffic may be led to an address: validation of endpoints refuses others, whole objects of them. A node says
/// which addresses its pods have.
pub fn is_endpoint_address(text: &str) -> bool {
    let Ok(address) = text.parse::<IpAddr>() else {
        return false;
    };
    let is_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.segments()[0] & 0xff0f == 0xff02,
    };
    let address = address.to_canonical();
    !(is_local || address.is_unspecified() || address.is_loopback())
}

/// Reports whether a pod is an endpoint of a service that selects it: it has an address, its containers have not ended for
/// good, and it is not on its way out (unless such pods are included, with their state).
pub fn counts_as_endpoint(pod: PodFacts<'_>, include_terminating: bool) -> bool {
    if matches!(pod.phase, "Failed" | "Succeeded") || pod.ip.is_empty() {
        return false;
    }
    include_terminating || !pod.deleting
}

/// Facts of a pod for [`counts_as_endpoint`].
#[derive(Debug, Clone, Copy)]
pub struct PodFacts<'a> {
    /// `status.phase`.
    pub phase: &'a str,
    /// `status.podIP`.
    pub ip: &'a str,
    /// It has a deletion timestamp.
    pub deleting: bool,
}

/// Target of a service port on a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePortTarget {
    /// The service port's name, empty where it has none.
    pub name: String,
    /// The pod's port.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The application protocol.
    pub app_protocol: Option<String>,
}

/// A container port by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedPort {
    /// The port's name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// Its number.
    pub port: i32,
}

/// Sorts ports for [`resolve_port`]; of those that are alike the first stays first.
pub fn sort_named(ports: &mut [NamedPort]) {
    ports.sort_by(|one, other| (&one.name, &one.protocol).cmp(&(&other.name, &other.protocol)));
}

/// The named ports of a pod, sorted; of those that are alike a container's comes before a sidecar's.
pub fn named_ports(spec: &PodSpec) -> Vec<NamedPort> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|own| crate::resources::is_sidecar(own));
    let all = spec.containers.iter().chain(sidecars);
    let mut ports: Vec<NamedPort> = all.flat_map(container_ports).collect();
    sort_named(&mut ports);
    ports
}

fn container_ports(container: &Container) -> impl Iterator<Item = NamedPort> + '_ {
    container.ports.iter().flatten().filter_map(|port| {
        let name = port.name.clone().filter(|name| !name.is_empty())?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        Some(NamedPort {
            name,
            protocol,
            port: port.container_port,
        })
    })
}

/// Returns the target of a service port on a pod with these named ports, which are sorted ([`sort_named`]); `None` if the pod
/// has no such port.
pub fn resolve_port(port: &ServicePort, named: &[NamedPort]) -> Option<ServicePortTarget> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) if name.is_empty() => port.port,
        Some(IntOrString::String(name)) => {
            let wanted = (name.as_str(), protocol.as_str());
            let key = |own: &NamedPort| (own.name.as_str(), own.protocol.as_str()).cmp(&wanted);
            let first = named.partition_point(|own| key(own).is_lt());
            named.get(first).filter(|own| key(own).is_eq())?.port
        }
    };
    let name = port.name.clone().unwrap_or_default();
    Some(ServicePortTarget {
        name,
        port: number,
        protocol,
        app_protocol: port.app_protocol.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_endpoint_may_have_are_known() {
        for address in ["10.244.0.5", "192.0.2.1", "fd00::1", "239.1.2.3"] {
            assert!(is_endpoint_address(address), "{address}");
        }
        for address in [
            "",
            "x",
            "0.0.0.0",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(!is_endpoint_address(address), "{address}");
        }
    }

    #[test]
    fn ports_resolve_by_number_and_name() {
        let named = [NamedPort {
            name: "web".into(),
            protocol: "TCP".into(),
            port: 8080,
        }];
        let port = |target: Option<IntOrString>| ServicePort {
            port: 80,
            target_port: target,
            ..ServicePort::default()
        };
        let number = |port: ServicePort| resolve_port(&port, &named).map(|target| target.port);
        assert_eq!(number(port(None)), Some(80));
        assert_eq!(number(port(Some(IntOrString::Int(81)))), Some(81));
        assert_eq!(number(port(Some(IntOrString::String("web".into())))), Some(8080));
        assert_eq!(number(port(Some(IntOrString::String("dns".into())))), None);
    }

    #[test]
    fn named_ports_are_found_among_many_and_the_first_of_several_counts() {
        let port = |name: &str, protocol: &str, port: i32| NamedPort {
            name: name.into(),
            protocol: protocol.into(),
            port,
        };
        let mut named = vec![port("web", "UDP", 1), port("web", "TCP", 2), port("a", "TCP", 3)];
        named.extend([port("web", "TCP", 4), port("z", "TCP", 5)]);
        sort_named(&mut named);
        let found = |name: &str, protocol: &str| {
            let port = ServicePort {
                port: 80,
                protocol: Some(protocol.into()),
                target_port: Some(IntOrString::String(name.into())),
                ..ServicePort::default()
            };
            resolve_port(&port, &named).map(|target| target.port)
        };
        assert_eq!(found("web", "TCP"), Some(2));
        assert_eq!(found("web", "UDP"), Some(1));
        assert_eq!(found("web", "SCTP"), None);
        assert_eq!((found("a", "TCP"), found("z", "TCP")), (Some(3), Some(5)));
    }

    #[test]
    fn endpoint_being_deleted_serves_and_is_not_ready() {
        let state = EndpointState::of_pod(true, true, false);
        assert_eq!(
            state,
            EndpointState {
                ready: false,
                serving: true,
                terminating: true
            }
        );
        assert!(EndpointState::of_pod(false, false, true).ready);
    }
}
