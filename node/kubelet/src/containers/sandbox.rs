//! The sandbox a pod's containers share. Pure.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use node_cri::v1;
use node_network::host_ports::{HostPort, PortKey, Protocol};

use super::{dns, files, security};
use crate::config::KubeletConfig;
use crate::pods::observed::label;
use crate::pods::{ContainerKind, all_containers, name, namespace, spec, uid};

/// The labels by which a pod's sandbox is found again.
pub(crate) fn labels(pod: &Pod) -> HashMap<String, String> {
    let own = pod
        .metadata
        .labels
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()));
    let ours = [
        (label::POD_NAME, name(pod)),
        (label::POD_NAMESPACE, namespace(pod)),
        (label::POD_UID, uid(pod)),
    ];
    own.chain(ours.map(|(key, value)| (key.to_string(), value.to_string())))
        .collect()
}

/// Builds the configuration of a sandbox for the runtime.
pub(crate) fn config(
    kubelet: &KubeletConfig,
    pod: &Pod,
    node_dns: &dns::NodeDns,
    attempt: u32,
) -> v1::PodSandboxConfig {
    let spec = spec(pod);
    let on_host = spec.host_network == Some(true);
    let (host, domain) = dns::host_name(pod, &kubelet.cluster_domain);
    let full = spec.set_hostname_as_fqdn == Some(true) && !domain.is_empty();
    let hostname = match (on_host, full) {
        (true, _) => String::new(),
        (false, true) => format!("{host}.{domain}"),
        (false, false) => host,
    };
    let sysctls = spec
        .security_context
        .iter()
        .flat_map(|context| context.sysctls.iter().flatten());
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name(pod).to_string(),
            namespace: namespace(pod).to_string(),
            uid: uid(pod).to_string(),
            attempt,
        }),
        hostname,
        log_directory: files::log_folder(kubelet, pod).display().to_string(),
        dns_config: Some(dns::dns_config(pod, node_dns)),
        port_mappings: if on_host { Vec::new() } else { port_mappings(pod) },
        labels: labels(pod),
        annotations: pod
            .metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: kubelet.groups().of_pod(pod),
            security_context: Some(security::sandbox_context(pod)),
            sysctls: sysctls
                .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
                .collect(),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    }
}

/// Ports of the machine that lead to the pod, as a network plugin of others has them from the runtime.
fn port_mappings(pod: &Pod) -> Vec<v1::PortMapping> {
    container_ports(pod).map(port_mapping).collect()
}

/// Ports of containers that run together, without those of init containers, which no scheduler counts.
fn container_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let together = all_containers(pod).filter(|(kind, _)| *kind != ContainerKind::Init);
    let ports = together.flat_map(|(_, container)| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.is_some_and(|port| port > 0))
}

/// The same as the node's own table takes them; those of IPv6 addresses are left out. Pods in the node's network have none.
pub(crate) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    if spec(pod).host_network == Some(true) {
        return Vec::new();
    }
    container_ports(pod).filter_map(host_port).collect()
}

fn host_port(port: &ContainerPort) -> Option<HostPort> {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    let address = match port.host_ip.as_deref().unwrap_or_default() {
        "" => None,
        text => Some(text.parse::<Ipv4Addr>().ok()?).filter(|address| !address.is_unspecified()),
    };
    let key = PortKey {
        protocol,
        port: u16::try_from(port.host_port?).ok()?,
        address,
    };
    let container_port = u16::try_from(port.container_port).ok()?;
    Some(HostPort { key, container_port })
}

fn port_mapping(port: &ContainerPort) -> v1::PortMapping {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => v1::Protocol::Udp,
        Some("SCTP") => v1::Protocol::Sctp,
        _ => v1::Protocol::Tcp,
    };
    v1::PortMapping {
        protocol: protocol as i32,
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: &[(&str, u16)]) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let ports = host_ports(&pod);
        let read: Vec<(String, u16)> = ports
            .iter()
            .map(|port| (port.key.to_string(), port.container_port))
            .collect();
        let read: Vec<(&str, u16)> = read.iter().map(|(key, port)| (key.as_str(), *port)).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn host_ports_are_those_of_containers_that_run_together() {
        let ports = json!([
            {"containerPort": 80, "hostPort": 8080},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "0.0.0.0"},
            {"containerPort": 1, "hostPort": 2, "protocol": "SCTP", "hostIP": "127.0.0.1"},
            {"containerPort": 3, "hostPort": 4, "hostIP": "2001:db8::1"},
            {"containerPort": 5, "hostPort": 6, "hostIP": "::"},
            {"containerPort": 7},
        ]);
        let expected = [("8080/TCP", 80), ("53/UDP", 53), ("127.0.0.1:2/SCTP", 1)];
        let container = json!([{"name": "c", "ports": ports}]);
        check(json!({"containers": container}), &expected);
        check(json!({"containers": container, "hostNetwork": true}), &[]);
        let inits = json!([
            {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
            {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2}]},
        ]);
        check(
            json!({"initContainers": inits, "containers": []}),
            &[("2/TCP", 2)],
        );
    }
}
