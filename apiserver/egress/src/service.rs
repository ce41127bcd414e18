//! Endpoints of a service behind which a webhook or an API extension answers (upstream's `ResolveEndpoint` with
//! `--enable-aggregator-routing`): this server need not be on a node where addresses of services lead anywhere.

use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::{ObjectReader, ReadError, ReadObject};
use machinery_meta::{GroupResource, ObjectKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The label with the name of a slice's service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Slices that are read for one call.
const MAX_SLICES: usize = 64;

/// Fields of a Service that lead to its endpoints.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub struct Service {
    pub spec: ServiceSpec,
}

/// The same of its spec.
#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub external_name: String,
    pub ip_families: Option<Vec<String>>,
    pub ports: Option<Vec<ServicePort>>,
}

/// A port that a Service listens on.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub struct ServicePort {
    pub name: String,
    pub port: i64,
}

/// Endpoints of an EndpointSlice.
#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    pub address_type: String,
    pub endpoints: Option<Vec<Endpoint>>,
    pub ports: Option<Vec<EndpointPort>>,
}

/// One endpoint of a slice.
#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    pub addresses: Option<Vec<String>>,
    pub conditions: EndpointConditions,
    pub target_ref: Option<TargetRef>,
}

impl Endpoint {
    /// The address that counts: upstream uses the first alone.
    pub fn address(&self) -> Option<&str> {
        self.addresses.iter().flatten().next().map(String::as_str)
    }
}

/// Conditions of an endpoint; ready by default.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
}

/// The pod that an endpoint is.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub struct TargetRef {
    pub namespace: String,
    pub name: String,
}

/// A port that all endpoints of a slice listen on.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub struct EndpointPort {
    pub name: Option<String>,
    pub port: Option<u16>,
}

/// Facts that upstream's availability controller checks before it calls a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    /// Endpoints are ready, or the service has another type, of which nothing is known beforehand.
    Usable,
    NotFound,
    NotListening,
    WithoutSlices,
    /// No endpoint is ready on the port of this name.
    WithoutEndpoints(String),
}

/// Host and port of an endpoint; any number as `choice` picks one of what would do as well.
pub(crate) async fn resolve(
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
    let own = ports.iter().find(|own| own.port == i64::from(port));
    let own = own.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let families = spec.ip_families.unwrap_or_default();
    let family = families.first().map_or("IPv4", String::as_str);
    endpoint(reader, (namespace, name), (&own.name, family), choice)
        .await?
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

/// The state of a service that must listen on this port.
///
/// # Errors
/// Storage has not answered.
pub async fn service_state(
    reader: &dyn ObjectReader,
    (namespace, name): (&str, &str),
    port: u16,
) -> Result<ServiceState, ReadError> {
    let key = ObjectKey::new(namespace, name);
    let found = reader.get(&GroupResource::new("", "services"), &key).await?;
    let Some(object) = found else {
        return Ok(ServiceState::NotFound);
    };
    // What cannot be read is caught by the call.
    let spec = parsed::<Service>(&object).unwrap_or_default().spec;
    if !matches!(&*spec.kind, "" | "ClusterIP") {
        return Ok(ServiceState::Usable);
    }
    let mut ports = spec.ports.into_iter().flatten();
    let Some(own) = ports.find(|own| own.port == i64::from(port)) else {
        return Ok(ServiceState::NotListening);
    };
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let labelled = LabelSelector::from_pairs([(SERVICE_NAME, name)]).into();
    let keys = reader.versions(&slices, namespace, &labelled).await?;
    if keys.is_empty() {
        return Ok(ServiceState::WithoutSlices);
    }
    for (key, _) in keys.into_iter().take(MAX_SLICES) {
        let Some(object) = reader.get(&slices, &key).await? else {
            continue;
        };
        let slice = parsed::<EndpointSlice>(&object).unwrap_or_default();
        if ready(&slice, &own.name, 0).is_some() {
            return Ok(ServiceState::Usable);
        }
    }
    Ok(ServiceState::WithoutEndpoints(own.name))
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
        _ => own.address(),
    })?;
    Some((address.to_owned(), port))
}
