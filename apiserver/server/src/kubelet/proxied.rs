//! Locations of requests that are proxied to a pod, a service or a node (upstream's `ResourceLocation` of the three
//! kinds).
//!
//! Only addresses that can be one of these: a client that may write a status must not reach listeners of this machine
//! alone. The dialer enforces that ([`AllowedAddresses::Global`]) on the very addresses that it connects to.

use super::location::{LocationRequest, Route, bad, find, find_pod, kubelet};
use super::path::ProxiedPath;
use apiserver_egress::{AllowedAddresses, Destination, Security};
use apiserver_endpoints::RequestInfo;
use apiserver_registry::RegistryError;
use http::Method;
use machinery_api::pod::PodView;
use machinery_meta::reader::{ObjectReader, ReadError};
use machinery_meta::{GroupResource, LabelSelector};
use serde::Deserialize;
use std::net::IpAddr;

/// The label with the name of a slice's service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The port of a pod that names none.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// Parts of an address that name the proxy: resource, name, `proxy`.
const NAMED_PARTS: usize = 3;

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
    port: i64,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointSlice {
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Conditions,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct TargetRef {
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointPort {
    name: Option<String>,
    port: Option<u16>,
}

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
    reader: &dyn ObjectReader,
    info: &RequestInfo,
    asked: &LocationRequest<'_>,
    choice: u64,
) -> Result<Route, RegistryError> {
    let kind = info.resource.trim_end_matches('s');
    let target =
        Target::parse(&info.name).ok_or_else(|| bad(format!("invalid {kind} request {:?}", info.name)))?;
    let destination = match info.resource.as_str() {
        "nodes" => node(reader, &target).await?,
        "pods" => pod(reader, &info.namespace, &target).await?,
        "services" => service(reader, &info.namespace, &target, choice).await?,
        _ => return Err(RegistryError::NoSuchResource),
    };
    let query = match asked.query {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let mut proxied = ProxiedPath::cut(asked.path, info.parts.len().saturating_sub(NAMED_PARTS));
    // A proxied root without its slash would break relative links.
    let reads = matches!(*asked.method, Method::GET | Method::HEAD);
    if proxied.rest.is_empty() && reads && !asked.upgrades {
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

async fn node(reader: &dyn ObjectReader, target: &Target<'_>) -> Result<Destination, RegistryError> {
    let agent = kubelet(reader, target.name).await?;
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
    reader: &dyn ObjectReader,
    namespace: &str,
    target: &Target<'_>,
) -> Result<Destination, RegistryError> {
    let pod = find_pod(reader, namespace, target.name).await?;
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
    reader: &dyn ObjectReader,
    namespace: &str,
    target: &Target<'_>,
    choice: u64,
) -> Result<Destination, RegistryError> {
    let port_name = match target.port.parse::<i64>() {
        Ok(number) => named_port(reader, namespace, target.name, number).await?,
        Err(_) => target.port.to_owned(),
    };
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let of_service = LabelSelector::from_pairs([(SERVICE_NAME, target.name)]).into();
    let internal = |error: ReadError| RegistryError::Internal(error.to_string());
    let versions = reader.versions(&slices, namespace, &of_service).await;
    for (key, _) in versions.map_err(internal)? {
        // A tenant may write as many as her quota holds, none of which says anything.
        tokio::task::consume_budget().await;
        let Some(object) = reader.get(&slices, &key).await.map_err(internal)? else {
            continue;
        };
        let slice: EndpointSlice = serde_json::from_slice(&object.json)
            .map_err(|error| RegistryError::Internal(error.to_string()))?;
        if let Some((host, port)) = endpoint(reader, namespace, &slice, &port_name, choice).await {
            return Ok(Destination {
                host,
                port,
                security: target.security(),
                reach: AllowedAddresses::Global,
            });
        }
    }
    Err(RegistryError::Unavailable(format!(
        "no endpoints available for service {:?}",
        target.name
    )))
}

/// The name of a service's port; a service of one port may leave it empty.
async fn named_port(
    reader: &dyn ObjectReader,
    namespace: &str,
    name: &str,
    number: i64,
) -> Result<String, RegistryError> {
    let service: Service = find(reader, "services", namespace, name).await?;
    let port = service.spec.ports.into_iter().find(|port| port.port == number);
    port.map(|port| port.name).ok_or_else(|| {
        RegistryError::Unavailable(format!("no service port {number} found for service {name:?}"))
    })
}

/// A ready endpoint of this port that is a pod of the namespace: a slice may be written by hand, and say anything.
async fn endpoint(
    reader: &dyn ObjectReader,
    namespace: &str,
    slice: &EndpointSlice,
    port_name: &str,
    choice: u64,
) -> Option<(String, u16)> {
    let ports = slice.ports.iter().flatten();
    let port = ports
        .filter(|port| port.name.as_deref().unwrap_or_default() == port_name)
        .find_map(|port| port.port)?;
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    let first = usize::try_from(choice % (endpoints.len() as u64).max(1)).unwrap_or(0);
    for endpoint in endpoints.iter().cycle().skip(first).take(endpoints.len()) {
        let Some(address) = endpoint.addresses.first() else {
            continue;
        };
        if endpoint.conditions.ready != Some(false) && is_a_pods(reader, namespace, endpoint).await {
            return Some((address.clone(), port));
        }
    }
    None
}

async fn is_a_pods(reader: &dyn ObjectReader, namespace: &str, endpoint: &Endpoint) -> bool {
    let Some(target) = &endpoint.target_ref else {
        return false;
    };
    if target.namespace != namespace {
        return false;
    }
    let Ok(pod) = find_pod(reader, namespace, &target.name).await else {
        return false;
    };
    let address = endpoint.addresses.first().map(String::as_str);
    PodView::new(pod.root())
        .addresses()
        .any(|own| Some(own) == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::reader::{ReadFuture, ReadObject};
    use machinery_meta::{ObjectHeader, ObjectKey, Predicate, Revision};
    use parking_lot::Mutex;
    use std::future::ready;
    use std::sync::Arc;

    /// Slices without endpoints, each of the service that has the first letter of its name; writes down which are copied.
    struct Slices {
        names: Vec<&'static str>,
        copied: Mutex<Vec<String>>,
    }

    impl Slices {
        fn object(&self, name: &str) -> ReadObject {
            self.copied.lock().push(name.to_owned());
            ReadObject {
                header: Arc::new(Self::header(name)),
                revision: Revision(1),
                json: b"{}".to_vec(),
            }
        }

        fn header(name: &str) -> ObjectHeader {
            let mut header = ObjectHeader {
                key: ObjectKey::new("default", name),
                ..ObjectHeader::default()
            };
            header.labels.push((SERVICE_NAME.into(), name[..1].into()));
            header
        }
    }

    impl ObjectReader for Slices {
        fn get<'a>(&'a self, _: &'a GroupResource, key: &'a ObjectKey) -> ReadFuture<'a, Option<ReadObject>> {
            Box::pin(ready(Ok(Some(self.object(&key.name)))))
        }

        fn list<'a>(&'a self, _: &'a GroupResource, _: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
            Box::pin(ready(Ok(self
                .names
                .iter()
                .map(|name| self.object(name))
                .collect())))
        }

        fn versions<'a>(
            &'a self,
            _: &'a GroupResource,
            _: &'a str,
            predicate: &'a Predicate,
        ) -> ReadFuture<'a, Vec<(ObjectKey, Revision)>> {
            let headers = self.names.iter().map(|name| Self::header(name));
            let matching = headers.filter(|header| predicate.matches(header));
            let versions = matching.map(|header| (header.key, Revision(1))).collect();
            Box::pin(ready(Ok(versions)))
        }
    }

    #[tokio::test]
    async fn service_copies_no_slices_of_other_services() {
        let slices = Slices {
            names: vec!["a-1", "b-1", "a-2", "c-1"],
            copied: Mutex::default(),
        };
        let target = Target::parse("a:web").unwrap();
        let error = service(&slices, "default", &target, 0).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unavailable(_)), "{error}");
        assert_eq!(*slices.copied.lock(), ["a-1", "a-2"]);
    }

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
