//! Locations of streaming requests.

use super::lookup::{self, Lookup};
use super::path::ProxiedPath;
use super::{options, proxied};
use apiserver_egress::{AllowedAddresses, Destination, Security};
use apiserver_endpoints::{Query, RequestInfo};
use apiserver_registry::RegistryError;
use http::Method;
use machinery_api::pod::PodView;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Ref;
use serde::Deserialize;

/// The kubelet's port where a node does not say.
const KUBELET_PORT: u16 = 10_250;
/// Upstream resolves names first; ours need no resolver, so addresses come first.
const ADDRESS_TYPES: [&str; 5] = [
    "InternalIP",
    "ExternalIP",
    "Hostname",
    "InternalDNS",
    "ExternalDNS",
];

/// The parts of a request that decide its location, beside the objects that it names.
#[derive(Debug)]
pub(super) struct LocationRequest<'a> {
    pub(super) method: &'a Method,
    /// As the client wrote it.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    /// The options of a connection, as admission left them.
    pub(super) options: Option<Ref<'a>>,
    /// The path behind a proxy that admission put in the place of the one of `path`.
    pub(super) path_instead: Option<&'a str>,
    /// The client wishes to switch protocols.
    pub(super) upgrades: bool,
}

/// The decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    To {
        destination: Destination,
        /// With its query.
        path: String,
        /// Path of a request that is proxied for a client; `None` for one to a kubelet.
        proxied: Option<ProxiedPath>,
    },
    /// Nothing to show yet: the logs of a pod without a node.
    Nowhere,
    Redirect(String),
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

pub(super) fn bad(message: impl Into<String>) -> RegistryError {
    RegistryError::BadRequest(message.into())
}

/// The kubelet of a node.
pub(super) async fn kubelet(lookup: &mut Lookup<'_>, node_name: &str) -> Result<Destination, RegistryError> {
    kubelet_of(lookup.find("nodes", "", node_name).await?)
}

/// The same for the server's own requests, which have no user.
pub(crate) async fn own_kubelet(
    reader: &dyn ObjectReader,
    node_name: &str,
) -> Result<Destination, RegistryError> {
    kubelet_of(lookup::parse(
        &lookup::read(reader, "nodes", "", node_name).await?,
    )?)
}

fn kubelet_of(node: Node) -> Result<Destination, RegistryError> {
    let address = ADDRESS_TYPES
        .iter()
        .find_map(|wanted| {
            node.status
                .addresses
                .iter()
                .find(|address| address.r#type == *wanted)
        })
        .ok_or_else(|| no_preferred(&node.status.addresses))?;
    let port = match node.status.daemon_endpoints.kubelet_endpoint.port {
        0 => KUBELET_PORT,
        port => port,
    };
    Ok(Destination {
        host: address.address.clone(),
        port,
        security: Security::Mutual,
        reach: AllowedAddresses::Any,
    })
}

/// The addresses of a refusal; the node writes as many as it likes.
const MAX_SHOWN_ADDRESSES: usize = 16;

fn no_preferred(known: &[NodeAddress]) -> RegistryError {
    let shown = known.iter().take(MAX_SHOWN_ADDRESSES);
    let shown: Vec<String> = shown
        .map(|known| format!("{{{} {}}}", known.r#type, known.address))
        .collect();
    RegistryError::Unclassified(format!(
        "no preferred addresses found; known addresses: [{}]",
        shown.join(" ")
    ))
}

/// Reads the objects a request names and decides; any number as `choice` picks one of what would do as well.
pub(super) async fn route(
    lookup: &mut Lookup<'_>,
    info: &RequestInfo,
    request: &LocationRequest<'_>,
    choice: u64,
) -> Result<Route, RegistryError> {
    let parsed = Query::parse(request.query);
    if info.subresource == "proxy" || info.verb == "proxy" {
        return proxied::route(lookup, info, request, choice).await;
    }
    let subresource = info.subresource.as_str();
    if subresource == "log" {
        options::check_log(&parsed, &info.name)?;
    }
    let pod = lookup.pod(&info.namespace, &info.name).await?;
    let pod = PodView::new(pod.root());
    let (verb, params) = match (subresource, request.options) {
        ("log", _) => ("containerLogs", options::log(&parsed)),
        ("exec", Some(options)) => ("exec", options::streams(options)),
        ("attach", Some(options)) => ("attach", options::streams(options)),
        ("portforward", Some(options)) => ("portForward", options::ports(options)),
        _ => return Err(RegistryError::NoSuchResource),
    };
    let mut path = format!("/{verb}/{}/{}", info.namespace, info.name);
    if subresource != "portforward" {
        let named = match request.options {
            Some(options) => options.str("container"),
            None => parsed.get("container").unwrap_or_default(),
        };
        let container = container(pod, info, named)?;
        path.push('/');
        path.push_str(&container);
    }
    if pod.node_name().is_empty() {
        return match subresource {
            "log" => Ok(Route::Nowhere),
            _ => Err(bad(format!("pod {} does not have a host assigned", info.name))),
        };
    }
    path.push_str(&params.into_text());
    Ok(Route::To {
        destination: kubelet(lookup, pod.node_name()).await?,
        path,
        proxied: None,
    })
}

/// The container a request means.
fn container(pod: PodView<'_>, info: &RequestInfo, request: &str) -> Result<String, RegistryError> {
    let names = |kind: &str| {
        let names = pod.containers_of(kind).map(|one| one.str("name").to_owned());
        names.collect::<Vec<_>>()
    };
    let (main, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    if !request.is_empty() {
        let known = [&main, &init, &ephemeral]
            .into_iter()
            .flatten()
            .any(|name| name == request);
        return if known {
            Ok(request.to_owned())
        } else {
            Err(bad(format!(
                "container {request} is not valid for pod {}",
                info.name
            )))
        };
    }
    let default = pod.annotation("kubectl.kubernetes.io/default-container");
    match (main.as_slice(), default) {
        ([only], _) if init.is_empty() || info.subresource != "log" || default.is_none() => Ok(only.clone()),
        (_, Some(default)) if main.iter().any(|own| own == default) => Ok(default.to_owned()),
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

#[cfg(test)]
mod tests {
    use crate::kubelet::options::Params;

    #[test]
    fn queries_are_escaped() {
        let mut params = Params::default();
        params.add("command", "a b&c");
        params.add("tty", "1");
        assert_eq!(params.into_text(), "?command=a%20b%26c&tty=1");
    }
}
