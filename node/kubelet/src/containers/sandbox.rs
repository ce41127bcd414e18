//! The sandbox a pod's containers share. Pure.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use node_cri::v1;

use super::{dns, files, resources, security};
use crate::config::KubeletConfig;
use crate::pods::observed::label;
use crate::pods::{all_containers, name, namespace, spec, uid};

/// The labels by which a pod's sandbox is found again.
pub fn labels(pod: &Pod) -> HashMap<String, String> {
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

/// What the runtime is asked for.
pub fn config(
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
            cgroup_parent: resources::pod_cgroup(&kubelet.cgroup_root, pod),
            security_context: Some(security::sandbox_context(pod)),
            sysctls: sysctls
                .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
                .collect(),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    }
}

/// Ports of the machine that lead to the pod.
fn port_mappings(pod: &Pod) -> Vec<v1::PortMapping> {
    let ports = all_containers(pod).flat_map(|(_, container)| container.ports.iter().flatten());
    ports
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
        .map(port_mapping)
        .collect()
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
