//! Cluster addresses: one `IPAddress` object each, named by the address, inside a `ServiceCIDR`.

use super::needs_address;
use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::metadata;
use crate::options::{ListOptions, RevisionMatch};
use crate::registry::Registry;
use crate::store::Store;
use crate::strategy::Change;
use apiserver_storage::Write;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::{Ref, Step, Tree, Value};
use std::net::Ipv4Addr;

/// Random picks before the range is walked.
const RANDOM_PICKS: usize = 16;
/// The lower end of a range is left to addresses people choose: a sixteenth of it, at least and at most so many.
const STATIC_BAND: (u32, u32) = (16, 256);

/// An IPv4 range by its first address and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    base: u32,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/')?;
        let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
        (bits <= 32).then(|| Self {
            base: u32::from(base),
            bits,
        })
    }

    fn size(self) -> u32 {
        1_u32.checked_shl(32 - self.bits).unwrap_or(0)
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.base);
        // The network's own address and the last one are nobody's.
        offset > 0 && offset < self.size().saturating_sub(1)
    }

    fn band(self) -> u32 {
        let (least, most) = STATIC_BAND;
        if self.size() < least * 2 {
            1
        } else {
            (self.size() / 16).clamp(least, most)
        }
    }

    /// Addresses in the order they are tried: some at random, then all above the band, then those below.
    fn candidates(self, random: u64) -> impl Iterator<Item = Ipv4Addr> {
        let (band, end) = (self.band(), self.size().saturating_sub(1));
        let upper = end.saturating_sub(band).max(1);
        let mut state = random;
        let picks = std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            band + u32::try_from(state >> 33).unwrap_or(0) % upper
        });
        picks
            .take(RANDOM_PICKS)
            .chain(band..end)
            .chain(1..band)
            .map(move |offset| Ipv4Addr::from(self.base + offset))
    }
}

/// Takes or gives back the address of a service.
pub(super) async fn addresses(
    ctx: &RequestContext,
    registry: &Registry,
    change: Change<'_>,
    service: &mut Tree,
) -> Result<Vec<Write>, RegistryError> {
    let (before, after) = match change {
        Change::Create => (None, wanted(service.root())),
        Change::Update { old } => (held(old), wanted(service.root())),
        Change::Delete => (held(service.root()), None),
    };
    match (before, after) {
        (Some(old), Some(new)) if new.is_empty() || new == old => Ok(Vec::new()),
        (before, after) => {
            let mut writes = match before {
                Some(address) => release(registry, &address).await?,
                None => Vec::new(),
            };
            if let Some(address) = after {
                writes.extend(take(ctx, registry, service, &address).await?);
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

/// The address a service asks for; empty for any.
fn wanted(service: Ref<'_>) -> Option<String> {
    needs_address(service).then(|| service.str_at(&["spec", "clusterIP"]).to_owned())
}

fn store(registry: &Registry, plural: &str) -> Result<Store, RegistryError> {
    registry
        .store("networking.k8s.io", "v1", plural)
        .ok_or_else(|| RegistryError::Internal(format!("{plural} are not served")))
}

async fn release(registry: &Registry, address: &str) -> Result<Vec<Write>, RegistryError> {
    match store(registry, "ipaddresses")?
        .get("", address, RevisionMatch::MostRecent)
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
    asked: &str,
) -> Result<Vec<Write>, RegistryError> {
    let ranges = ranges(registry).await?;
    let addresses = store(registry, "ipaddresses")?;
    let chosen = if asked.is_empty() {
        free_address(ctx, &addresses, &ranges).await?
    } else {
        check_asked(&addresses, &ranges, service, asked).await?
    };
    let chosen = chosen.to_string();
    service.set_str(&["spec", "clusterIP"], &chosen);
    service.set(&[Step::Name("spec"), Step::Name("clusterIPs")], Value::EmptyList);
    service.push(&["spec", "clusterIPs"], chosen.as_str());
    let object = address_object(ctx, &addresses, service, &chosen);
    Ok(vec![Write::create(
        addresses.key("", &chosen)?,
        addresses.encode(&object)?,
    )])
}

/// The ready ranges of IPv4.
async fn ranges(registry: &Registry) -> Result<Vec<Range>, RegistryError> {
    let cidrs = store(registry, "servicecidrs")?;
    let page = cidrs.list("", &ListOptions::default()).await?;
    let mut ranges = Vec::new();
    for entry in &page.entries {
        if entry.record.header.is_deleting() {
            continue;
        }
        let object = cidrs.decode(entry)?;
        let listed = object.get("spec").into_iter().flat_map(|spec| spec.list("cidrs"));
        ranges.extend(listed.filter_map(Ref::as_str).filter_map(Range::parse));
    }
    Ok(ranges)
}

async fn free_address(
    ctx: &RequestContext,
    addresses: &Store,
    ranges: &[Range],
) -> Result<Ipv4Addr, RegistryError> {
    for range in ranges {
        for candidate in range.candidates(ctx.runtime.random_u64()) {
            let key = addresses.key("", &candidate.to_string())?;
            if addresses.read_entry(&key).await?.is_none() {
                return Ok(candidate);
            }
        }
    }
    Err(RegistryError::Internal(
        "failed to allocate a serviceIP: range is full".into(),
    ))
}

async fn check_asked(
    addresses: &Store,
    ranges: &[Range],
    service: &Tree,
    asked: &str,
) -> Result<Ipv4Addr, RegistryError> {
    let refuse = |detail: String| {
        let path = FieldPath::new("spec").child("clusterIPs");
        let error = FieldError::invalid(&path, Shown(format!("[{asked:?}]")), detail);
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
    let Ok(address) = asked.parse::<Ipv4Addr>() else {
        return refuse(format!(
            "failed to allocate IP {asked}: the provided IP is not of a family this cluster has"
        ));
    };
    if !ranges.iter().any(|range| range.contains(address)) {
        return refuse(format!(
            "failed to allocate IP {asked}: the provided network does not match the current range"
        ));
    }
    let key = addresses.key("", asked)?;
    if addresses.read_entry(&key).await?.is_some() {
        return refuse(format!(
            "failed to allocate IP {asked}: provided IP is already allocated"
        ));
    }
    Ok(address)
}

fn address_object(ctx: &RequestContext, addresses: &Store, service: &Tree, address: &str) -> Tree {
    let row = &addresses.row;
    let mut object = Tree::new(&row.schema, row.ty);
    object.set_str(&["kind"], &row.gvk.kind);
    object.set_str(&["apiVersion"], &row.gvk.api_version());
    object.set_str(&["metadata", "name"], address);
    object.set_str(
        &["metadata", "labels", "ipaddress.kubernetes.io/ip-family"],
        "IPv4",
    );
    object.set_str(
        &["metadata", "labels", "ipaddress.kubernetes.io/managed-by"],
        "ipallocator.k8s.io",
    );
    metadata::fill_new(&mut object, ctx);
    object.set_str(&["spec", "parentRef", "resource"], "services");
    object.set_str(&["spec", "parentRef", "namespace"], metadata::namespace(service));
    object.set_str(&["spec", "parentRef", "name"], metadata::name(service));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_offer_their_upper_part_first() {
        let range = Range::parse("10.96.0.0/16").unwrap();
        assert_eq!(range.band(), 256);
        assert!(
            range
                .candidates(7)
                .take(100)
                .all(|address| u32::from(address) - range.base >= 256)
        );
        assert!(range.contains(Ipv4Addr::new(10, 96, 0, 1)));
        assert!(!range.contains(Ipv4Addr::new(10, 96, 0, 0)));
        assert!(!range.contains(Ipv4Addr::new(10, 96, 255, 255)));
        let small = Range::parse("10.0.0.0/30").unwrap();
        let all: std::collections::BTreeSet<_> = small.candidates(1).collect();
        assert_eq!(
            all,
            [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)].into()
        );
    }
}
