//! Subsets in upstream's canonical form: each port stands in one subset, with every address that has it. Pure.
//!
//! Ports that stand in the same subsets have the same addresses, so that ports and addresses are not paired.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, BTreeSet};

/// Steps that one look may take over addresses; subsets that come later are left out.
const MAX_STEPS: usize = 1_000_000;
/// Subsets that are mirrored at most.
const MAX_SUBSETS: usize = 1_000;

/// Ports, and the addresses that have them.
#[derive(Debug)]
pub(super) struct Packed<'a> {
    pub(super) ports: Vec<&'a EndpointPort>,
    /// With whether each is ready.
    pub(super) addresses: Vec<(&'a EndpointAddress, bool)>,
}

/// Identity of an address: its IP and the uid of its target.
type AddressKey<'a> = (&'a str, &'a str);
type PortKey<'a> = (i32, &'a str, &'a str, &'a str);

/// The canonical form, and whether something had no room.
pub(super) fn repack(subsets: &[EndpointSubset]) -> (Vec<Packed<'_>>, bool) {
    let mut known: BTreeMap<AddressKey<'_>, &EndpointAddress> = BTreeMap::new();
    // The subsets in which a port stands; none for addresses without a port.
    let mut by_port: BTreeMap<Option<PortKey<'_>>, (Option<&EndpointPort>, BTreeSet<usize>)> =
        BTreeMap::new();
    for (at, subset) in subsets.iter().enumerate() {
        for (address, _) in addresses(subset) {
            known.entry(address_key(address)).or_insert(address);
        }
        let ports = subset.ports.iter().flatten();
        for port in ports {
            let entry = by_port.entry(Some(port_key(port)));
            entry
                .or_insert_with(|| (Some(port), BTreeSet::new()))
                .1
                .insert(at);
        }
        if subset.ports.iter().flatten().next().is_none() {
            by_port.entry(None).or_default().1.insert(at);
        }
    }
    let mut groups: BTreeMap<BTreeSet<usize>, Vec<&EndpointPort>> = BTreeMap::new();
    for (port, within) in by_port.into_values() {
        groups.entry(within).or_default().extend(port);
    }
    merge(subsets, &known, groups)
}

/// Joins groups of ports that have the same addresses.
fn merge<'a>(
    subsets: &'a [EndpointSubset],
    known: &BTreeMap<AddressKey<'a>, &'a EndpointAddress>,
    groups: BTreeMap<BTreeSet<usize>, Vec<&'a EndpointPort>>,
) -> (Vec<Packed<'a>>, bool) {
    let mut steps = 0;
    let mut packed: BTreeMap<Vec<(AddressKey<'a>, bool)>, Vec<&'a EndpointPort>> = BTreeMap::new();
    let mut truncated = false;
    for (within, ports) in groups {
        let sizes = within.iter().map(|at| addresses(&subsets[*at]).count());
        steps += sizes.sum::<usize>();
        if steps > MAX_STEPS || packed.len() >= MAX_SUBSETS {
            truncated = true;
            break;
        }
        let mut ready: BTreeMap<AddressKey<'a>, bool> = BTreeMap::new();
        for (address, is_ready) in within.iter().flat_map(|at| addresses(&subsets[*at])) {
            // Not ready in one place is not ready.
            *ready.entry(address_key(address)).or_insert(true) &= is_ready;
        }
        packed
            .entry(ready.into_iter().collect())
            .or_default()
            .extend(ports);
    }
    let unpack = |(addresses, ports): (Vec<(AddressKey<'a>, bool)>, _)| Packed {
        ports,
        addresses: addresses
            .into_iter()
            .filter_map(|(key, ready)| Some((*known.get(&key)?, ready)))
            .collect(),
    };
    (packed.into_iter().map(unpack).collect(), truncated)
}

fn addresses(subset: &EndpointSubset) -> impl Iterator<Item = (&EndpointAddress, bool)> {
    let ready = subset.addresses.iter().flatten().map(|own| (own, true));
    let not_ready = subset.not_ready_addresses.iter().flatten();
    ready.chain(not_ready.map(|own| (own, false)))
}

fn address_key(address: &EndpointAddress) -> AddressKey<'_> {
    let target = address.target_ref.as_ref();
    let uid = target.and_then(|target| target.uid.as_deref());
    (&address.ip, uid.unwrap_or_default())
}

fn port_key(port: &EndpointPort) -> PortKey<'_> {
    (
        port.port,
        port.name.as_deref().unwrap_or_default(),
        port.protocol.as_deref().unwrap_or_default(),
        port.app_protocol.as_deref().unwrap_or_default(),
    )
}
