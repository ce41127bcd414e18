//! Cluster addresses: one `IPAddress` object each, named by the address, inside a `ServiceCIDR`.

use super::needs_address;
use super::range::{RANDOM_PICKS, Range};
use super::shares::{self, Pool, Taking};
use crate::engine::allocation::AllocationChange;
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::options::{ListOptions, RevisionMatch};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::Store;
use apiserver_storage::Write;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::{Ref, Step, Tree, Value};
use std::net::Ipv4Addr;

/// Manager of these addresses, in [`MANAGED_BY_LABEL`].
pub(super) const MANAGER: &str = "ipallocator.k8s.io";
pub(super) const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
pub(super) const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
pub(super) const FAMILY: &str = "IPv4";

/// Addresses that are tried one after the other without a pause.
const WALK_STEP: usize = 256;

/// Takes or gives back the address of a service.
pub(super) async fn allocate(
    ctx: &RequestContext,
    registry: &Registry,
    change: AllocationChange<'_>,
    service: &mut Tree,
) -> Result<Vec<Write>, RegistryError> {
    let (before, after) = match change {
        AllocationChange::Create => (None, wanted(service.root())),
        AllocationChange::Update { old } => (held(old), wanted(service.root())),
        AllocationChange::Delete => (held(service.root()), None),
    };
    match (before, after) {
        (Some(old), Some(new)) if new.is_empty() || new == old => Ok(Vec::new()),
        (before, after) => {
            let mut writes = match before {
                Some(address) => release(registry, &address).await?,
                None => Vec::new(),
            };
            if let Some(address) = after {
                let is_more = writes.is_empty();
                writes.extend(take(ctx, registry, service, (&address, is_more)).await?);
            }
            Ok(writes)
        }
    }
}

/// The address a service has.
fn held(service: Ref<'_>) -> Option<String> {
    let address = service.str_at(&["spec", "clusterIP"]);
    (needs_address(service) && !address.is_empty()).then(|| address.to_owned())
}

/// The address a service requests; empty for any.
fn wanted(service: Ref<'_>) -> Option<String> {
    needs_address(service).then(|| service.str_at(&["spec", "clusterIP"]).to_owned())
}

pub(super) fn store(registry: &Registry, plural: &str) -> Result<Store, RegistryError> {
    registry
        .store("networking.k8s.io", "v1", plural)
        .ok_or_else(|| RegistryError::Internal(format!("{plural} are not served")))
}

async fn release(registry: &Registry, address: &str) -> Result<Vec<Write>, RegistryError> {
    match store(registry, "ipaddresses")?
        .get(&Scope::Cluster, address, RevisionMatch::MostRecent)
        .await
    {
        Ok(entry) => Ok(vec![Write::delete(entry.key.clone(), entry.revision)]),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn take(
    ctx: &RequestContext,
    registry: &Registry,
    service: &mut Tree,
    (requested, is_more): (&str, bool),
) -> Result<Vec<Write>, RegistryError> {
    let ranges = Range::open(registry).await?;
    let addresses = store(registry, "ipaddresses")?;
    let taking = Taking {
        pool: Pool::ClusterIps,
        namespace: metadata::namespace(service),
        name: metadata::name(service),
        more: usize::from(is_more),
        all: ranges.iter().map(|range| range.capacity()).sum(),
        taken: addresses_taken(registry).await? + 1,
    };
    shares::check(ctx, registry, taking).await?;
    let chosen = if requested.is_empty() {
        free_address(ctx, &addresses, &ranges).await?
    } else {
        check_requested(&addresses, &ranges, service, requested).await?
    };
    let chosen = chosen.to_string();
    service.set_str(&["spec", "clusterIP"], &chosen);
    service.set(&[Step::Name("spec"), Step::Name("clusterIPs")], Value::EmptyList);
    service.push(&["spec", "clusterIPs"], chosen.as_str());
    let object = address_object(ctx, &addresses, service, &chosen);
    Ok(vec![Write::create(
        addresses.key(&Scope::Cluster, &chosen)?,
        addresses.encode(&object)?,
    )])
}

/// Number of addresses that services of all namespaces have.
async fn addresses_taken(registry: &Registry) -> Result<usize, RegistryError> {
    let addresses = store(registry, "ipaddresses")?;
    let options = ListOptions {
        revision: RevisionMatch::Any,
        limit: 1,
        ..ListOptions::default()
    };
    let page = addresses.list(&Scope::Cluster, &options).await?;
    let left = usize::try_from(page.remaining.unwrap_or(0)).unwrap_or(usize::MAX);
    Ok(page.entries.len().saturating_add(left))
}

async fn free_address(
    ctx: &RequestContext,
    addresses: &Store,
    ranges: &[Range],
) -> Result<Ipv4Addr, RegistryError> {
    for range in ranges {
        for (tried, candidate) in range.candidates(ctx.runtime.random_u64()).enumerate() {
            // A range that is nearly full is walked: in turn with other heavy work, and in pieces.
            if tried >= RANDOM_PICKS && tried % WALK_STEP == RANDOM_PICKS {
                ctx.heavy().await?;
                ctx.in_time()?;
                tokio::task::yield_now().await;
            }
            let key = addresses.key(&Scope::Cluster, &candidate.to_string())?;
            if addresses.read_entry(&key).await?.is_none() {
                return Ok(candidate);
            }
        }
    }
    Err(RegistryError::Internal(
        "failed to allocate a serviceIP: range is full".into(),
    ))
}

async fn check_requested(
    addresses: &Store,
    ranges: &[Range],
    service: &Tree,
    requested: &str,
) -> Result<Ipv4Addr, RegistryError> {
    let refuse = |detail: String| {
        let path = FieldPath::new("spec").child("clusterIPs");
        let error = FieldError::invalid(&path, Shown(format!("[{requested:?}]")), detail);
        let kind = GroupKind {
            group: String::new(),
            kind: "Service".into(),
        };
        Err(RegistryError::Invalid {
            kind,
            name: metadata::name(service).to_owned(),
            errors: vec![error],
        })
    };
    let Ok(address) = requested.parse::<Ipv4Addr>() else {
        return refuse(format!(
            "failed to allocate IP {requested}: the provided IP is not of a family this cluster has"
        ));
    };
    if !ranges.iter().any(|range| range.contains(address)) {
        return refuse(format!(
            "failed to allocate IP {requested}: the provided network does not match the current range"
        ));
    }
    let key = addresses.key(&Scope::Cluster, requested)?;
    if addresses.read_entry(&key).await?.is_some() {
        return refuse(format!(
            "failed to allocate IP {requested}: provided IP is already allocated"
        ));
    }
    Ok(address)
}

/// The object of a service's address.
pub(super) fn address_object(ctx: &RequestContext, addresses: &Store, service: &Tree, address: &str) -> Tree {
    let row = &addresses.row;
    let mut object = Tree::new(&row.schema, row.ty);
    object.set_str(&["kind"], &row.gvk.kind);
    object.set_str(&["apiVersion"], &row.gvk.api_version());
    object.set_str(&["metadata", "name"], address);
    object.set_str(&["metadata", "labels", FAMILY_LABEL], FAMILY);
    object.set_str(&["metadata", "labels", MANAGED_BY_LABEL], MANAGER);
    metadata::fill_new(&mut object, ctx);
    object.set_str(&["spec", "parentRef", "resource"], "services");
    object.set_str(&["spec", "parentRef", "namespace"], metadata::namespace(service));
    object.set_str(&["spec", "parentRef", "name"], metadata::name(service));
    addresses.track_own(ctx, &mut object);
    object
}
