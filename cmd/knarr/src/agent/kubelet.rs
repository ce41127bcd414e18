//! The kubelet's configuration, as flags and files of the node have it.

use super::address::{node_ip, server_address};
use super::arguments::AgentArguments;
use crate::node_arguments::NodeArguments;
use crate::{join, kubelet_configuration, open_files, own_certificate};
use anyhow::Context;
use ipnet::Ipv4Net;
use node_kubelet::cdi::CdiSource;
use node_kubelet::images::{CredentialProvidersConfig, CredentialProvidersSource, base};
use node_kubelet::node::reserve::Reserve;
use node_kubelet::resource_managers::ResourceManagersConfig;
use node_kubelet::static_pods::StaticPodSource;
use node_kubelet::{KubeletConfig, SystemLogsConfig};
use node_network::host_ports::HostPortsConfig;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// The kubelet's own folder, in which stock device plugins look for its socket.
const UPSTREAM_ROOT: &str = "/var/lib/kubelet";
/// Folder of logs that log agents read.
const UPSTREAM_LOGS: &str = "/var/log";

/// The configuration of the kubelet.
pub(super) fn config(arguments: &AgentArguments, kubeconfig: &Path) -> anyhow::Result<KubeletConfig> {
    let in_folder =
        |name: &str| Some(arguments.data_dir.join(name)).filter(|path| path.try_exists().unwrap_or(false));
    let given = arguments
        .tls_cert_file
        .clone()
        .zip(arguments.tls_private_key_file.clone());
    let defaults = KubeletConfig::for_data_dir(arguments.data_dir.clone());
    let node_ip = node_ip(arguments.node.node_ip, kubeconfig)?;
    let is_joined = arguments.join.server.is_some();
    Ok(KubeletConfig {
        host_ports: host_ports(arguments, kubeconfig),
        node_name: arguments.node_name(),
        node_ip,
        cluster_dns: arguments.cluster_dns().into_iter().map(IpAddr::V4).collect(),
        cluster_domain: arguments.cluster_domain.clone(),
        resolv_conf: arguments.resolv_conf(),
        node_labels: arguments
            .node
            .node_labels
            .iter()
            .cloned()
            .collect::<BTreeMap<_, _>>(),
        register_node: arguments.node.register_node,
        register_with_taints: arguments.node.register_with_taints.clone(),
        cgroup_root: arguments.node.cgroup_root.clone(),
        cgroup_driver: arguments.node.cgroup_driver,
        static_pods: static_pods(arguments)?,
        static_pod_url: arguments.node.manifest_url.source(decode_manifest),
        cdi: CdiSource {
            decode: decode_manifest,
            ..CdiSource::default()
        },
        swap_behavior: arguments.node.memory_swap_behavior,
        max_pods: max_pods(&arguments.node),
        image_pulls_max: image_pulls_max(&arguments.node),
        credential_providers: credential_providers(&arguments.node)?,
        kept_fields: shown_fields(&arguments.node),
        flags: crate::server::flags_of("agent"),
        system_logs: SystemLogsConfig {
            is_served: arguments.node.enable_system_log_handler,
            is_queried: arguments.node.enable_system_log_query,
            ..SystemLogsConfig::default()
        },
        pod_max_pids: arguments.node.pod_max_pids,
        reserve: reserve(&arguments.node),
        resource_managers: arguments.node.resources.clone().into(),
        eviction: arguments.node.eviction.clone().into(),
        image_collection: arguments.node.eviction.image_collection(),
        shutdown: arguments.node.shutdown.clone().into(),
        container_log_max_bytes: arguments.node.container_log_max_size,
        container_log_max_files: arguments.node.container_log_max_files,
        port: arguments.port,
        healthz_port: Some(arguments.healthz_port).filter(|port| *port != 0),
        tls_awaited: given.is_none() && is_joined,
        tls: given
            .or_else(|| in_folder(own_certificate::CERTIFICATE).zip(in_folder(own_certificate::KEY)))
            .or_else(|| is_joined.then(|| join::serving_files(&arguments.data_dir))),
        client_ca: arguments
            .client_ca_file
            .clone()
            .or_else(|| in_folder(join::AUTHORITY)),
        max_connections: open_files::connections(defaults.max_connections),
        container_runtime_endpoint: match &arguments.node.container_runtime_endpoint {
            Some(endpoint) => endpoint.trim_start_matches("unix://").into(),
            None => defaults.container_runtime_endpoint.clone(),
        },
        api_server: server_address(kubeconfig)
            .ok()
            .flatten()
            .map(|server| server.to_string())
            .unwrap_or_default(),
        pause_image: match &arguments.node.container_runtime_endpoint {
            Some(_) => defaults.pause_image.clone(),
            None => base::PAUSE_IMAGE.to_owned(),
        },
        // Pods start in a mount namespace of the agent's own, or wherever another runtime starts them.
        plugins_shown_in: arguments
            .node
            .container_runtime_endpoint
            .is_none()
            .then(|| UPSTREAM_ROOT.into()),
        logs_shown_in: arguments
            .node
            .container_runtime_endpoint
            .is_none()
            .then(|| UPSTREAM_LOGS.into()),
        plugins_root: match arguments.node.container_runtime_endpoint {
            Some(_) => UPSTREAM_ROOT.into(),
            None => defaults.plugins_root.clone(),
        },
        ..defaults
    })
}

fn reserve(node: &NodeArguments) -> Reserve {
    let mut reserve = node.reserve.clone().into();
    ResourceManagersConfig::from(node.resources.clone()).override_reserve(&mut reserve);
    reserve
}

fn max_pods(node: &NodeArguments) -> u32 {
    let cores = u32::try_from(node_sys::machine::Machine::observe().cpus).unwrap_or(u32::MAX);
    match node.pods_per_core {
        0 => node.max_pods,
        by_core => node.max_pods.min(by_core.saturating_mul(cores)),
    }
}

fn image_pulls_max(node: &NodeArguments) -> Option<u32> {
    match node.serialize_image_pulls {
        true => Some(1),
        false => node.max_parallel_image_pulls,
    }
}

fn credential_providers(node: &NodeArguments) -> anyhow::Result<Option<CredentialProvidersConfig>> {
    let given = node
        .image_credential_provider_config
        .as_ref()
        .zip(node.image_credential_provider_bin_dir.as_ref());
    let Some((config, bin_dir)) = given else {
        return Ok(None);
    };
    let source = CredentialProvidersSource {
        config: config.clone(),
        bin_dir: std::path::absolute(bin_dir).context("--image-credential-provider-bin-dir")?,
        decode: decode_manifest,
        duration: machinery_schema::leaf::parse_duration,
    };
    let read = source.read().map_err(anyhow::Error::msg);
    read.map(Some).context("--image-credential-provider-config")
}

/// Fields of `/configz` that the kubelet itself has no use for.
fn shown_fields(node: &NodeArguments) -> serde_json::Map<String, serde_json::Value> {
    let mut fields = kubelet_configuration::kept_values();
    let own = [
        ("failSwapOn", node.fail_swap_on.into()),
        ("failCgroupV1", node.fail_cgroup_v1.into()),
        ("serializeImagePulls", node.serialize_image_pulls.into()),
        ("maxParallelImagePulls", node.max_parallel_image_pulls.into()),
        ("podsPerCore", node.pods_per_core.into()),
        ("mergeDefaultEvictionSettings", false.into()),
    ];
    fields.extend(own.map(|(name, value): (&str, serde_json::Value)| (name.to_owned(), value)));
    fields
}

fn static_pods(arguments: &AgentArguments) -> anyhow::Result<Option<StaticPodSource>> {
    let Some(path) = &arguments.node.pod_manifest_path else {
        return Ok(None);
    };
    let path = std::path::absolute(path).context("--pod-manifest-path")?;
    Ok(Some(StaticPodSource {
        path,
        decode: decode_manifest,
    }))
}

/// Reads YAML or JSON.
fn decode_manifest(content: &[u8]) -> Result<serde_json::Value, String> {
    if let Some((line, key)) = machinery_schema::yaml::duplicate_key(content) {
        return Err(format!("line {line}: the key {key} is there already"));
    }
    let json = machinery_schema::yaml::yaml_to_json(content).map_err(|error| error.to_string())?;
    serde_json::from_str(&json).map_err(|error| error.to_string())
}

/// Names are the cluster's on every address of the node; its own servers are the agent's, and the API server where that is
/// on this machine.
fn host_ports(arguments: &AgentArguments, kubeconfig: &Path) -> HostPortsConfig {
    let names = arguments.cluster_dns().into_iter().map(Ipv4Net::from);
    let mut here = node_sys::machine::addresses().into_iter();
    let server = server_address(kubeconfig)
        .ok()
        .flatten()
        .filter(|server| server.ip().is_loopback() || here.any(|address| address == server.ip()));
    let ports = [arguments.port, arguments.healthz_port].into_iter();
    HostPortsConfig {
        reserved_addresses: names.chain([arguments.service_cluster_ip_range]).collect(),
        node_ports: ports.chain(server.map(|server| server.port())).collect(),
    }
}
