//! Name resolution of a pod: host name, search path, `/etc/hosts`. Pure.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use node_cri::v1::DnsConfig;
use node_sys::resolv_conf::ResolvConf;

use crate::pods::{name, namespace, spec};

/// Limits of the resolver as upstream has them.
const NAME_SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const HOST_NAME_LENGTH_MAX: usize = 63;

/// DNS settings of the node.
#[derive(Debug, Clone, Default)]
pub struct NodeDns {
    /// The cluster's name servers.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// The node's own resolver configuration.
    pub host: DnsConfig,
}

/// File of systemd-resolved with the name servers behind its own loopback address.
const SYSTEMD_RESOLV_CONF: &str = "run/systemd/resolve/resolv.conf";
/// Bytes of the file that are read.
const RESOLV_CONF_BYTES_MAX: u64 = 64 << 10;

/// The resolver configuration that pods can use: a name server on the machine's loopback is not theirs.
pub fn host_resolv_conf(root: &Path) -> PathBuf {
    let usual = root.join("etc/resolv.conf");
    let behind = root.join(SYSTEMD_RESOLV_CONF);
    let servers = read_resolv_conf(&usual).servers;
    let loopback = |server: &String| server.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let only_loopback = !servers.is_empty() && servers.iter().all(loopback);
    if only_loopback && !read_resolv_conf(&behind).servers.is_empty() {
        return behind;
    }
    usual
}

/// Reads one as it is now; a missing one is empty. Blocks.
pub fn read_resolv_conf(path: &Path) -> DnsConfig {
    let bytes = node_sys::fs::read_head(path, RESOLV_CONF_BYTES_MAX).unwrap_or_default();
    parse_resolv_conf(&String::from_utf8_lossy(&bytes))
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let ResolvConf {
        servers,
        searches,
        options,
    } = ResolvConf::parse(text);
    DnsConfig {
        servers,
        searches,
        options,
    }
}

/// The pod's resolver configuration by its policy.
pub fn dns_config(pod: &Pod, node: &NodeDns) -> DnsConfig {
    let spec = spec(pod);
    let on_host = spec.host_network == Some(true);
    let mut config = match spec.dns_policy.as_deref() {
        Some("None") => DnsConfig::default(),
        Some("Default") => node.host.clone(),
        Some("ClusterFirstWithHostNet") => cluster_config(pod, node),
        _ if on_host => node.host.clone(),
        _ => cluster_config(pod, node),
    };
    if let Some(own) = &spec.dns_config {
        config.servers.extend(own.nameservers.iter().flatten().cloned());
        config.searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            config
                .options
                .retain(|given| given.split(':').next() != Some(name.as_str()));
            config.options.push(match &option.value {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name,
            });
        }
    }
    let mut seen = Vec::new();
    for list in [&mut config.servers, &mut config.searches] {
        seen.clear();
        list.retain(|item| {
            let fresh = !seen.contains(item);
            seen.push(item.clone());
            fresh
        });
    }
    config.servers.truncate(NAME_SERVERS_MAX);
    config.searches.truncate(SEARCHES_MAX);
    config
}

fn cluster_config(pod: &Pod, node: &NodeDns) -> DnsConfig {
    if node.cluster_dns.is_empty() {
        return node.host.clone();
    }
    let domain = &node.cluster_domain;
    let mut searches = vec![
        format!("{}.svc.{domain}", namespace(pod)),
        format!("svc.{domain}"),
        domain.clone(),
    ];
    searches.extend(node.host.searches.iter().cloned());
    DnsConfig {
        servers: node.cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_string()],
    }
}

/// The pod's host name and its domain, empty without a subdomain.
pub fn host_name(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let spec = spec(pod);
    let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(name) = given(&spec.hostname_override) {
        return (cut_to_host_name(&name), String::new());
    }
    let host = cut_to_host_name(&given(&spec.hostname).unwrap_or_else(|| name(pod).to_owned()));
    let domain = match spec.subdomain.as_deref() {
        Some(sub) if !sub.is_empty() => format!("{sub}.{}.svc.{cluster_domain}", namespace(pod)),
        _ => String::new(),
    };
    (host, domain)
}

fn cut_to_host_name(name: &str) -> String {
    let mut host: String = name.chars().take(HOST_NAME_LENGTH_MAX).collect();
    host.truncate(host.trim_end_matches(['-', '.']).len());
    host
}

/// The pod's `/etc/hosts`. With the node's network it begins with the node's own.
pub fn hosts_file(pod: &Pod, ips: &[String], cluster_domain: &str, node_hosts: &str) -> String {
    let spec = spec(pod);
    let mut out = String::new();
    if spec.host_network == Some(true) {
        out.push_str("# Kubernetes-managed hosts file (host network).\n");
        out.push_str(node_hosts);
    } else {
        out.push_str(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::\tip6-localnet\nfe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
        );
        let (host, domain) = host_name(pod, cluster_domain);
        for ip in ips {
            let _ = match domain.as_str() {
                "" => writeln!(out, "{ip}\t{host}"),
                domain => writeln!(out, "{ip}\t{host}.{domain}\t{host}"),
            };
        }
    }
    let aliases: Vec<_> = spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        out.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.clone().unwrap_or_default();
            let _ = writeln!(out, "{}\t{}", alias.ip, names.join("\t"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn resolv_conf_of_systemd_resolved_is_the_one_behind_it() {
        let root = tempfile::tempdir().unwrap();
        let (usual, behind) = (
            root.path().join("etc/resolv.conf"),
            root.path().join(SYSTEMD_RESOLV_CONF),
        );
        for path in [&usual, &behind] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        let write =
            |path: &Path, server: &str| std::fs::write(path, format!("nameserver {server}\n")).unwrap();
        let found = || host_resolv_conf(root.path());
        assert_eq!(found(), usual, "there is none");
        write(&usual, "127.0.0.53");
        assert_eq!(found(), usual, "there is no other");
        write(&behind, "192.0.2.53");
        assert_eq!(found(), behind);
        write(&usual, "192.0.2.1");
        assert_eq!(found(), usual, "pods reach it");
    }

    #[test]
    fn pod_dns_asks_cluster_first() {
        let node = NodeDns {
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".into(),
            host: parse_resolv_conf("search lan\nnameserver 1.1.1.1\n"),
        };
        let default = pod(r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[]}}"#);
        let config = dns_config(&default, &node);
        assert_eq!(config.servers, ["10.96.0.10"]);
        assert_eq!(
            config.searches,
            ["n.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"]
        );
        let own = pod(
            r#"{"spec":{"containers":[],"dnsPolicy":"None","dnsConfig":{"nameservers":["8.8.8.8"],"options":[{"name":"ndots","value":"2"}]}}}"#,
        );
        let config = dns_config(&own, &node);
        assert_eq!(
            (config.servers, config.options),
            (vec!["8.8.8.8".to_string()], vec!["ndots:2".to_string()])
        );
    }

    #[test]
    fn hosts_file_names_the_pod() {
        let pod = pod(
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[],"hostname":"h","subdomain":"s",
                "hostAliases":[{"ip":"1.2.3.4","hostnames":["a","b"]}]}}"#,
        );
        let file = hosts_file(&pod, &["10.0.0.5".to_string()], "cluster.local", "");
        assert!(file.contains("10.0.0.5\th.s.n.svc.cluster.local\th\n"), "{file}");
        assert!(
            file.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"),
            "{file}"
        );
    }
}
