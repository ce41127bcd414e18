//! A ready endpoint of a service, for the proxy (upstream's `RandomEndpoint`): slices are tried in random order, those of
//! the cluster's primary family before others.

use super::lookup::Lookup;
use apiserver_egress::service::{Endpoint, EndpointSlice, SERVICE_NAME, Service};
use apiserver_registry::RegistryError;
use machinery_api::pod::PodView;
use machinery_meta::{GroupResource, ObjectKey};

/// The family of the cluster's first address range.
const PRIMARY_FAMILY: &str = "IPv4";

/// Address and port of an endpoint of a service, given by namespace and name. `port` is the number or the name of one of
/// the service's ports; any number as `choice` picks one of what would do as well.
pub(super) async fn find(
    lookup: &mut Lookup<'_>,
    (namespace, name): (&str, &str),
    port: &str,
    choice: u64,
) -> Result<(String, u16), RegistryError> {
    let port_name = match port.parse::<i64>() {
        Ok(number) => named_port(lookup, (namespace, name), number).await?,
        Err(_) => port.to_owned(),
    };
    let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
    let keys = lookup.keys(&slices, namespace, (SERVICE_NAME, name)).await?;
    let mut of_other_family = None;
    for key in shuffled(keys, choice) {
        let Some(slice) = lookup.listed::<EndpointSlice>(&slices, &key).await? else {
            continue;
        };
        let is_primary = slice.address_type == PRIMARY_FAMILY;
        if !is_primary && of_other_family.is_some() {
            continue;
        }
        match endpoint(lookup, namespace, &slice, &port_name, choice).await? {
            Some(found) if is_primary => return Ok(found),
            Some(found) => of_other_family = Some(found),
            None => {}
        }
    }
    of_other_family
        .ok_or_else(|| RegistryError::Unavailable(format!("no endpoints available for service {name:?}")))
}

/// The same keys in an order that the choice decides.
fn shuffled(mut keys: Vec<ObjectKey>, choice: u64) -> Vec<ObjectKey> {
    let mut state = choice;
    for last in (1..keys.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) % (last as u64 + 1);
        keys.swap(last, usize::try_from(at).unwrap_or(last));
    }
    keys
}

/// The name of a service's port; a service of one port may leave it empty.
async fn named_port(
    lookup: &mut Lookup<'_>,
    (namespace, name): (&str, &str),
    number: i64,
) -> Result<String, RegistryError> {
    let service: Service = lookup.find("services", namespace, name).await?;
    let mut ports = service.spec.ports.into_iter().flatten();
    let port = ports.find(|port| port.port == number);
    port.map(|port| port.name).ok_or_else(|| {
        RegistryError::Unavailable(format!("no service port {number} found for service {name:?}"))
    })
}

/// A ready endpoint of this port that is a pod of the namespace: a slice may be written by hand, and say anything.
async fn endpoint(
    lookup: &mut Lookup<'_>,
    namespace: &str,
    slice: &EndpointSlice,
    port_name: &str,
    choice: u64,
) -> Result<Option<(String, u16)>, RegistryError> {
    let ports = slice.ports.iter().flatten();
    // As upstream, for which a port without a name is not the one whose name is empty.
    let mut named = ports.filter(|port| port.name.as_deref() == Some(port_name));
    let Some(port) = named.find_map(|port| port.port) else {
        return Ok(None);
    };
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    let first = usize::try_from(choice % (endpoints.len() as u64).max(1)).unwrap_or(0);
    for endpoint in endpoints.iter().cycle().skip(first).take(endpoints.len()) {
        let Some(address) = endpoint.address() else {
            continue;
        };
        if endpoint.conditions.ready != Some(false) && is_a_pods(lookup, namespace, endpoint).await? {
            return Ok(Some((address.to_owned(), port)));
        }
    }
    Ok(None)
}

async fn is_a_pods(
    lookup: &mut Lookup<'_>,
    namespace: &str,
    endpoint: &Endpoint,
) -> Result<bool, RegistryError> {
    let Some(target) = &endpoint.target_ref else {
        return Ok(false);
    };
    if target.namespace != namespace {
        return Ok(false);
    }
    let pod = match lookup.pod(namespace, &target.name).await {
        Ok(pod) => pod,
        // For whom there is no turn among the heavy work, and whose time is up, the next endpoint is none either.
        Err(error @ (RegistryError::TooManyRequests { .. } | RegistryError::Timeout(_))) => {
            return Err(error);
        }
        Err(_) => return Ok(false),
    };
    let address = endpoint.address();
    Ok(PodView::new(pod.root())
        .addresses()
        .any(|own| Some(own) == address))
}

#[cfg(test)]
#[path = "service_endpoint_tests.rs"]
mod tests;
