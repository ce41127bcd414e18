//! The volume that suits a claim best, and what keeps a volume from suiting one.

use super::views::{ClaimView, VolumeView};
use machinery_client::Object;
use std::sync::Arc;

pub(super) type VolumeRef = Arc<Object<VolumeView>>;

/// The smallest of the volumes with the fewest access modes that suit the claim; before them, one that names the claim.
///
/// A claim that waits for its pod gets no volume here but one that names it: the scheduler chooses.
pub(super) fn best_match<'a>(
    claim: &Object<ClaimView>,
    candidates: &'a [VolumeRef],
    waits_for_pod: bool,
) -> Result<Option<&'a VolumeRef>, String> {
    let selector = claim.selector.as_ref().map_err(Clone::clone)?;
    let suits = |volume: &&VolumeRef| {
        let names_claim = match &volume.claim {
            Some(own) if !own.means(&claim.header) => return false,
            own => own.is_some(),
        };
        volume.capacity >= claim.request
            && volume.is_block == claim.is_block
            && volume.attributes_class == claim.attributes_class
            && !volume.header.is_deleting()
            && has_modes(claim, volume)
            && (names_claim
                || !waits_for_pod
                    && &*volume.phase == "Available"
                    && volume.class == claim.class().into()
                    && selector
                        .as_ref()
                        .is_none_or(|selector| selector.matches(&volume.header)))
    };
    let rank = |volume: &&VolumeRef| {
        let modes = volume.access_modes.len();
        (
            modes,
            volume.claim.is_none(),
            volume.capacity,
            volume.key().clone(),
        )
    };
    Ok(candidates.iter().filter(suits).min_by_key(rank))
}

fn has_modes(claim: &ClaimView, volume: &VolumeView) -> bool {
    claim
        .access_modes
        .iter()
        .all(|mode| volume.access_modes.contains(mode))
}

/// Reason why a claim that names the volume cannot have it.
pub(super) fn mismatch(claim: &ClaimView, volume: &Object<VolumeView>) -> Option<String> {
    let reason = if volume.header.is_deleting() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name()));
    } else if volume.capacity.units() < claim.request.units() {
        "requested PV is too small"
    } else if *volume.class != *claim.class() {
        "storageClassName does not match"
    } else if volume.attributes_class != claim.attributes_class {
        "volumeAttributesClassName does not match"
    } else if volume.is_block != claim.is_block {
        "incompatible volumeMode"
    } else if !has_modes(claim, volume) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(reason.to_owned())
}
