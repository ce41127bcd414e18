//! Locations of requests that are proxied to a pod, a service or a node (upstream's `ResourceLocation` of the three
//! kinds).
//!
//! Only addresses that can be one of these: a client that may write a status must not reach listeners of this machine
//! alone. The dialer enforces that ([`AllowedAddresses::Global`]) on the very addresses that it connects to.

use super::location::{LocationRequest, Route, bad, kubelet};
use super::lookup::Lookup;
use super::path::ProxiedPath;
use super::service_endpoint;
use apiserver_egress::{AllowedAddresses, Destination, Security};
use apiserver_endpoints::RequestInfo;
use apiserver_registry::RegistryError;
use http::Method;
use machinery_api::pod::PodView;
use std::net::IpAddr;

/// The port of a pod that names none.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Parts of an address that name the proxy: resource, name, `proxy`.
const NAMED_PARTS: usize = 3;

/// `scheme:name:port`, each part but the name may be absent.
struct Target<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Target<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let known = ["", "http", "https"].contains(&scheme) && !name.is_empty();
        known.then_some(Self {
            https: scheme == "https",
            name,
            port,
        })
    }

    fn security(&self) -> Security {
        match self.https {
            true => Security::Unverified,
            false => Security::Plain,
        }
    }
}

/// Decides about a `proxy` request.
pub(super) async fn route(
    lookup: &mut Lookup<'_>,
    info: &RequestInfo,
    request: &LocationRequest<'_>,
    choice: u64,
) -> Result<Route, RegistryError> {
    let kind = info.resource.trim_end_matches('s');
    let target =
        Target::parse(&info.name).ok_or_else(|| bad(format!("invalid {kind} request {:?}", info.name)))?;
    let destination = match info.resource.as_str() {
        "nodes" => node(lookup, &target).await?,
        "pods" => pod(lookup, &info.namespace, &target).await?,
        "services" => service(lookup, &info.namespace, &target, choice).await?,
        _ => return Err(RegistryError::NoSuchResource),
    };
    let query = match request.query {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let mut proxied = ProxiedPath::cut(request.path, info.parts.len().saturating_sub(NAMED_PARTS));
    if let Some(path) = request.path_instead {
        proxied.lead_to(path);
    }
    // A proxied root without its slash would break relative links.
    let reads = matches!(*request.method, Method::GET | Method::HEAD);
    if proxied.rest.is_empty() && reads && !request.upgrades {
        return Ok(Route::Redirect(format!("{}/{query}", info.path)));
    }
    if proxied.rest.is_empty() {
        proxied.rest.push('/');
    }
    Ok(Route::To {
        destination: Destination {
            reach: AllowedAddresses::Global,
            ..destination
        },
        path: format!("{}{query}", proxied.rest),
        proxied: Some(proxied),
    })
}

async fn node(lookup: &mut Lookup<'_>, target: &Target<'_>) -> Result<Destination, RegistryError> {
    let agent = kubelet(lookup, target.name).await?;
    let port = port_number(target.port)?.unwrap_or(agent.port);
    // Another port is another server's.
    let security = match port == agent.port {
        true => agent.security,
        false => target.security(),
    };
    Ok(Destination {
        port,
        security,
        ..agent
    })
}

fn port_number(text: &str) -> Result<Option<u16>, RegistryError> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            // As upstream, whose dialer is the first to look at a number.
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                let why = format!("error trying to reach service: dial tcp: address {text}: invalid port");
                return RegistryError::Unavailable(why);
            }
            bad(format!("invalid port {text:?}"))
        }),
    }
}

async fn pod(
    lookup: &mut Lookup<'_>,
    namespace: &str,
    target: &Target<'_>,
) -> Result<Destination, RegistryError> {
    let pod = lookup.pod(namespace, target.name).await?;
    let pod = PodView::new(pod.root());
    let declared = pod
        .containers_of("containers")
        .find_map(|container| container.list("ports").next())
        .and_then(|port| port.get("containerPort")?.as_i64())
        .and_then(|port| u16::try_from(port).ok());
    let usual = if target.https { HTTPS } else { HTTP };
    let host = pod.addresses().next().unwrap_or_default().to_owned();
    // Names are for nodes.
    let _: IpAddr = host.parse().map_err(|_| bad("address not allowed"))?;
    let port = port_number(target.port)?.or(declared).unwrap_or(usual);
    Ok(Destination {
        host,
        port,
        security: target.security(),
        reach: AllowedAddresses::Global,
    })
}

async fn service(
    lookup: &mut Lookup<'_>,
    namespace: &str,
    target: &Target<'_>,
    choice: u64,
) -> Result<Destination, RegistryError> {
    let (host, port) = service_endpoint::find(lookup, (namespace, target.name), target.port, choice).await?;
    Ok(Destination {
        host,
        port,
        security: target.security(),
        reach: AllowedAddresses::Global,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_proxied_things_are_split() {
        let parts = |text| Target::parse(text).map(|target| (target.https, target.name, target.port));
        assert_eq!(parts("web"), Some((false, "web", "")));
        assert_eq!(parts("web:80"), Some((false, "web", "80")));
        assert_eq!(parts("https:web:443"), Some((true, "web", "443")));
        assert_eq!(parts("ftp:web:21"), None);
        assert_eq!(parts(":80"), None);
    }
}
