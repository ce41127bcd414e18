//! Endpoints of a webhook's service (upstream's `ResolveEndpoint` with `--enable-aggregator-routing`): this server need not be on a
//! node where addresses of services lead anywhere.

use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The label with the name of a slice's service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Slices that are read for one call.
const MAX_SLICES: usize = 64;

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Service {
    spec: ServiceSpec,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    external_name: String,
    ip_families: Option<Vec<String>>,
    ports: Option<Vec<ServicePort>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ServicePort {
    name: String,
    port: u16,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EndpointSlice {
    address_type: String,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Endpoint {
    addresses: Option<Vec<String>>,
    conditions: Conditions,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct EndpointPort {
    name: Option<String>,
    port: Option<u16>,
}

/// Host and port of an endpoint; any number as `choice` picks one of what would do as well.
pub(super) async fn resolve(
    reader: &dyn ObjectReader,
    (namespace, name): (&str, &str),
    port: u16,
    choice: u64,
) -> Result<(String, u16), String> {
    let key = ObjectKey::new(namespace, name);
    let found = reader.get(&GroupResource::new("", "services"), &key).await;
    let found = found.map_err(|error| error.to_string())?;
    let service: Service = parsed(&found.ok_or_else(|| format!("service {name:?} not found"))?)?;
    let spec = service.spec;
    match &*spec.kind {
        "" | "ClusterIP" | "LoadBalancer" | "NodePort" => {}
        "ExternalName" => return Ok((spec.external_name, port)),
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let ports = spec.ports.unwrap_or_default();
    let own = ports.iter().find(|own| own.port == port);
    let own = own.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let families = spec.ip_families.unwrap_or_default();
    let family = families.first().map_or("IPv4", String::as_str);
    endpoint(reader, (namespace, name), (&own.name, family), choice)
        .await?
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

fn parsed<T: DeserializeOwned>(object: &ReadObject) -> Result<T, String> {
    serde_json::from_slice(&object.json).map_err(|error| error.to_string())
}

/// A ready endpoint, of the service's first family where there is one.
async fn endpoint(
    reader: &dyn ObjectReader,
    (namespace, name): (&str, &str),
    (port, family): (&str, &str),
    choice: u64,
) -> Result<Option<(String, u16)>, String> {
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let labelled = LabelSelector::from_pairs([(SERVICE_NAME, name)]).into();
    let versions = reader.versions(&slices, namespace, &labelled).await;
    let mut keys = versions.map_err(|error| error.to_string())?;
    if !keys.is_empty() {
        let first = usize::try_from(choice % keys.len() as u64).unwrap_or(0);
        keys.rotate_left(first);
    }
    let mut of_other_family = None;
    for (key, _) in keys.into_iter().take(MAX_SLICES) {
        let found = reader.get(&slices, &key).await;
        let Some(object) = found.map_err(|error| error.to_string())? else {
            continue;
        };
        let slice: EndpointSlice = parsed(&object)?;
        match ready(&slice, port, choice) {
            Some(found) if slice.address_type == family => return Ok(Some(found)),
            Some(found) => of_other_family = Some(found),
            None => {}
        }
    }
    Ok(of_other_family)
}

fn ready(slice: &EndpointSlice, port: &str, choice: u64) -> Option<(String, u16)> {
    let ports = slice.ports.iter().flatten();
    let mut named = ports.filter(|own| own.name.as_deref().unwrap_or_default() == port);
    let port = named.find_map(|own| own.port)?;
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    let first = usize::try_from(choice % (endpoints.len() as u64).max(1)).unwrap_or(0);
    let mut all = endpoints.iter().cycle().skip(first).take(endpoints.len());
    let address = all.find_map(|own| match own.conditions.ready {
        Some(false) => None,
        _ => own.addresses.iter().flatten().next(),
    })?;
    Some((address.clone(), port))
}
