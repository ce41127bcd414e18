//! The time at which a pod goes, and because of which rules.

use super::view::{AllocatedDevice, AllocationView, DeviceTaint, DevicesView, NO_EXECUTE, RuleView};
use crate::views::{DeviceClaimSource, PodView};
use jiff::{SignedDuration, Timestamp};
use machinery_client::{Informer, Object};
use machinery_meta::{ObjectKey, Uid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The end of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) when: Timestamp,
    /// Rules among its reasons.
    pub(super) rules: BTreeSet<Uid>,
}

impl Eviction {
    /// The earlier of both, for the reasons of both.
    fn and(self, other: Self) -> Self {
        Self {
            when: self.when.min(other.when),
            rules: self.rules.into_iter().chain(other.rules).collect(),
        }
    }
}

/// Objects that decide.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) claims: &'a dyn Fn(&ObjectKey) -> Option<Arc<Object<AllocationView>>>,
    /// Slices of a pool, by `driver/pool`.
    pub(super) slices: &'a dyn Fn(&str) -> Vec<Arc<Object<DevicesView>>>,
    pub(super) rules: &'a [Arc<Object<RuleView>>],
}

/// Rules that end pods, and `other` as if it did.
pub(super) fn evicting(rules: &Informer<RuleView>, other: Option<&Uid>) -> Vec<Arc<Object<RuleView>>> {
    let mut all = Vec::new();
    rules.for_each(|rule| {
        if *rule.rule.taint.effect == *NO_EXECUTE || other == Some(rule.uid()) {
            all.push(Arc::clone(rule));
        }
    });
    all
}

/// The end of the pod, where one of its claims has a device with a taint that is not tolerated.
pub(super) fn of_pod(pod: &Object<PodView>, known: Known<'_>) -> Option<Eviction> {
    let own = pod.device_claims.as_ref()?;
    if pod.node.is_empty() {
        return None;
    }
    let mut evictions = own.claims.iter().filter_map(|named| {
        let key = ObjectKey::new(pod.namespace(), named.claim()?);
        let claim = (known.claims)(&key)?;
        let was_made = matches!(named.source(), DeviceClaimSource::Template(..));
        let controller = claim.header.controller();
        if was_made && controller.is_none_or(|owner| owner.uid != *pod.uid()) {
            return None;
        }
        let is_reserved = claim.reserved_for.iter().any(|uid| **uid == *pod.uid().0);
        is_reserved.then(|| of_claim(&claim, &pod.node, known))?
    });
    let first = evictions.next()?;
    Some(evictions.fold(first, Eviction::and))
}

fn of_claim(claim: &AllocationView, node: &str, known: Known<'_>) -> Option<Eviction> {
    let devices = claim.devices.iter();
    let mut evictions = devices.filter_map(|device| of_device(device, node, known));
    let first = evictions.next()?;
    Some(evictions.fold(first, Eviction::and))
}

/// Slices of other nodes count neither by their taints nor by their generation: a node writes those with its own name
/// (decision 0126; upstream's counts all of the pool).
fn of_device(device: &AllocatedDevice, node: &str, known: Known<'_>) -> Option<Eviction> {
    let [driver, pool, name] = device.id();
    let mut slices = (known.slices)(&format!("{driver}/{pool}"));
    slices.retain(|slice| slice.may_concern(node));
    // Slices of an earlier generation are outdated.
    let newest = slices.iter().map(|slice| slice.generation()).max();
    let current = slices.iter().filter(|slice| Some(slice.generation()) == newest);
    let own = current
        .flat_map(|slice| slice.taints_of(name))
        .filter(|taint| *taint.effect == *NO_EXECUTE);
    let own = own.filter_map(|taint| of_taint(device, taint, None));
    let selected = known.rules.iter().filter(|rule| rule.selects(device.id()));
    let rules = selected.filter_map(|rule| {
        // A rule that is only tried out counts as if it ended pods.
        let taint = DeviceTaint {
            effect: NO_EXECUTE.into(),
            ..rule.rule.taint.clone()
        };
        of_taint(device, &taint, Some(rule.uid()))
    });
    let mut all = own.chain(rules);
    let first = all.next()?;
    Some(all.fold(first, Eviction::and))
}

/// The end that one taint makes; the shortest of the tolerations counts.
fn of_taint(device: &AllocatedDevice, taint: &DeviceTaint, rule: Option<&Uid>) -> Option<Eviction> {
    let added = taint.time_added?;
    let mut shortest = None;
    for own in device.tolerations.iter().filter(|own| own.tolerates(taint)) {
        let seconds = own.toleration_seconds?.max(0);
        shortest = Some(shortest.unwrap_or(seconds).min(seconds));
    }
    let wait = SignedDuration::from_secs(shortest.unwrap_or(0));
    Some(Eviction {
        when: added.checked_add(wait).unwrap_or(Timestamp::MAX),
        rules: rule.cloned().into_iter().collect(),
    })
}
