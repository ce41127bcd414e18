//! Where a streaming or proxy request goes.

use super::options;
use apiserver_egress::Destination;
use apiserver_endpoints::{Query, RequestInfo};
use apiserver_registry::RegistryError;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{GroupResource, ObjectKey};
use serde::Deserialize;

/// The kubelet's port where a node does not say.
const KUBELET_PORT: u16 = 10_250;
/// Upstream asks for names first; ours need no resolver, so addresses come first.
const ADDRESS_TYPES: [&str; 5] = [
    "InternalIP",
    "ExternalIP",
    "Hostname",
    "InternalDNS",
    "ExternalDNS",
];

/// The decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    To {
        destination: Destination,
        path: String,
    },
    /// Nothing to show yet: the logs of a pod without a node.
    Nowhere,
    Redirect(String),
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    ephemeral_containers: Vec<Container>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Container {
    name: String,
    ports: Vec<ContainerPort>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ContainerPort {
    container_port: u16,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Node {
    status: NodeStatus,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    addresses: Vec<NodeAddress>,
    daemon_endpoints: DaemonEndpoints,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct NodeAddress {
    r#type: String,
    address: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DaemonEndpoints {
    kubelet_endpoint: DaemonEndpoint,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct DaemonEndpoint {
    #[serde(rename = "Port")]
    port: u16,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Endpoints {
    subsets: Vec<Subset>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Subset {
    addresses: Vec<EndpointAddress>,
    ports: Vec<EndpointPort>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointAddress {
    ip: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointPort {
    name: String,
    port: u16,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ServiceSpec {
    ports: Vec<ServicePort>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ServicePort {
    name: String,
    port: u16,
}

fn bad(message: impl Into<String>) -> RegistryError {
    RegistryError::BadRequest(message.into())
}

async fn find<T: serde::de::DeserializeOwned>(
    reader: &dyn ObjectReader,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<T, RegistryError> {
    let resource = GroupResource::new("", plural);
    let found = reader.get(&resource, &ObjectKey::new(namespace, name)).await;
    let found = found.map_err(|error| RegistryError::Internal(error.to_string()))?;
    let object = found.ok_or_else(|| RegistryError::not_found(&resource, name))?;
    serde_json::from_slice(&object.json).map_err(|error| RegistryError::Internal(error.to_string()))
}

/// The kubelet of a node.
async fn kubelet(reader: &dyn ObjectReader, node_name: &str) -> Result<Destination, RegistryError> {
    let node: Node = find(reader, "nodes", "", node_name).await?;
    let address = ADDRESS_TYPES
        .iter()
        .find_map(|wanted| {
            node.status
                .addresses
                .iter()
                .find(|address| address.r#type == *wanted)
        })
        .ok_or_else(|| {
            RegistryError::Internal(format!(
                "no preferred addresses found; known addresses: [] ({node_name})"
            ))
        })?;
    let port = match node.status.daemon_endpoints.kubelet_endpoint.port {
        0 => KUBELET_PORT,
        port => port,
    };
    Ok(Destination {
        host: address.address.clone(),
        port,
        tls: true,
    })
}

/// Reads the objects a request names and decides.
pub(super) async fn route(
    reader: &dyn ObjectReader,
    info: &RequestInfo,
    query: &str,
) -> Result<Route, RegistryError> {
    let parsed = Query::parse(query);
    if info.subresource == "proxy" || info.verb == "proxy" {
        return proxy(reader, info, query).await;
    }
    let subresource = info.subresource.as_str();
    if subresource == "log" {
        options::check_log(&parsed, &info.name)?;
    }
    let pod: Pod = find(reader, "pods", &info.namespace, &info.name).await?;
    let (verb, params) = match subresource {
        "log" => ("containerLogs", options::log(&parsed)),
        "exec" => ("exec", options::streams(&parsed)),
        "attach" => ("attach", options::streams(&parsed)),
        "portforward" => ("portForward", options::ports(&parsed)),
        _ => return Err(RegistryError::NoSuchResource),
    };
    let mut path = format!("/{verb}/{}/{}", info.namespace, info.name);
    if subresource != "portforward" {
        let container = container(&pod, info, parsed.get("container").unwrap_or_default())?;
        path.push('/');
        path.push_str(&container);
    }
    if pod.spec.node_name.is_empty() {
        return match subresource {
            "log" => Ok(Route::Nowhere),
            _ => Err(bad(format!("pod {} does not have a host assigned", info.name))),
        };
    }
    path.push_str(&params.into_text());
    Ok(Route::To {
        destination: kubelet(reader, &pod.spec.node_name).await?,
        path,
    })
}

/// The container a request means.
fn container(pod: &Pod, info: &RequestInfo, asked: &str) -> Result<String, RegistryError> {
    let names = |list: &[Container]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let (main, init, ephemeral) = (
        names(&pod.spec.containers),
        names(&pod.spec.init_containers),
        names(&pod.spec.ephemeral_containers),
    );
    if !asked.is_empty() {
        let known = [&main, &init, &ephemeral]
            .into_iter()
            .flatten()
            .any(|name| name == asked);
        return if known {
            Ok(asked.to_owned())
        } else {
            Err(bad(format!(
                "container {asked} is not valid for pod {}",
                info.name
            )))
        };
    }
    let default = pod
        .metadata
        .annotations
        .get("kubectl.kubernetes.io/default-container");
    match (main.as_slice(), default) {
        ([only], _) if init.is_empty() || info.subresource != "log" || default.is_none() => Ok(only.clone()),
        (_, Some(default)) if main.contains(default) => Ok(default.clone()),
        ([], _) => Err(bad(format!(
            "a container name must be specified for pod {}",
            info.name
        ))),
        (several, _) => Err(bad(choose(&info.name, several, &init))),
    }
}

fn choose(pod: &str, main: &[String], init: &[String]) -> String {
    let mut text = format!(
        "a container name must be specified for pod {pod}, choose one of: [{}]",
        main.join(" ")
    );
    if !init.is_empty() {
        text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
    }
    text
}

/// `scheme:name:port`, each part but the name may be absent.
struct ProxyName<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

fn split_name(text: &str) -> Option<ProxyName<'_>> {
    let parts: Vec<&str> = text.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    ["", "http", "https"].contains(&scheme).then_some(ProxyName {
        https: scheme == "https",
        name,
        port,
    })
}

async fn proxy(reader: &dyn ObjectReader, info: &RequestInfo, query: &str) -> Result<Route, RegistryError> {
    let target =
        split_name(&info.name).ok_or_else(|| bad(format!("invalid proxy request {:?}", info.name)))?;
    // A proxied root without its slash would break relative links.
    if info.parts.len() <= 3 && info.subresource == "proxy" && !info.path.ends_with('/') {
        let query = if query.is_empty() {
            String::new()
        } else {
            format!("?{query}")
        };
        return Ok(Route::Redirect(format!("{}/{query}", info.path)));
    }
    let mut path = format!("/{}", info.parts.get(3..).unwrap_or_default().join("/"));
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    if !query.is_empty() {
        path.push('?');
        path.push_str(query);
    }
    let destination = match info.resource.as_str() {
        "nodes" => {
            let mut destination = kubelet(reader, target.name).await?;
            if let Ok(port) = target.port.parse() {
                destination.port = port;
                destination.tls = target.https || port == KUBELET_PORT;
            }
            destination
        }
        "pods" => pod_destination(reader, &info.namespace, &target).await?,
        "services" => service_destination(reader, &info.namespace, &target).await?,
        _ => return Err(RegistryError::NoSuchResource),
    };
    Ok(Route::To { destination, path })
}

async fn pod_destination(
    reader: &dyn ObjectReader,
    namespace: &str,
    target: &ProxyName<'_>,
) -> Result<Destination, RegistryError> {
    let pod: Pod = find(reader, "pods", namespace, target.name).await?;
    let first = pod
        .spec
        .containers
        .iter()
        .flat_map(|container| &container.ports)
        .next();
    let port = match target.port {
        "" => first.map_or(80, |port| port.container_port),
        text => text.parse().map_err(|_| bad(format!("invalid port {text:?}")))?,
    };
    if pod.status.pod_ip.is_empty() {
        return Err(bad("address not allowed"));
    }
    Ok(Destination {
        host: pod.status.pod_ip,
        port,
        tls: target.https,
    })
}

async fn service_destination(
    reader: &dyn ObjectReader,
    namespace: &str,
    target: &ProxyName<'_>,
) -> Result<Destination, RegistryError> {
    let unavailable =
        |what: &str| RegistryError::Unavailable(format!("no endpoints available for service {what:?}"));
    let service: Service = find(reader, "services", namespace, target.name).await?;
    let named = match target.port.parse::<u16>() {
        _ if target.port.is_empty() => service.spec.ports.first(),
        Ok(number) => service.spec.ports.iter().find(|port| port.port == number),
        Err(_) => service.spec.ports.iter().find(|port| port.name == target.port),
    };
    let named = named.ok_or_else(|| {
        RegistryError::Unavailable(format!(
            "no service port {:?} found for service {:?}",
            target.port, target.name
        ))
    })?;
    let endpoints: Endpoints = find(reader, "endpoints", namespace, target.name)
        .await
        .map_err(|_| unavailable(target.name))?;
    for subset in &endpoints.subsets {
        let port = subset.ports.iter().find(|port| port.name == named.name);
        if let (Some(port), Some(address)) = (port, subset.addresses.first()) {
            return Ok(Destination {
                host: address.ip.clone(),
                port: port.port,
                tls: target.https,
            });
        }
    }
    Err(unavailable(target.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::options::Params;

    #[test]
    fn names_of_proxied_things_are_split() {
        let parts = |text| split_name(text).map(|p| (p.https, p.name, p.port));
        assert_eq!(parts("web"), Some((false, "web", "")));
        assert_eq!(parts("web:80"), Some((false, "web", "80")));
        assert_eq!(parts("https:web:443"), Some((true, "web", "443")));
        assert_eq!(parts("ftp:web:21"), None);
    }

    #[test]
    fn queries_are_escaped() {
        let mut params = Params::default();
        params.add("command", "a b&c");
        params.add("tty", "1");
        assert_eq!(params.into_text(), "?command=a%20b%26c&tty=1");
    }
}
