//! The end of an attempt at a pod that fits nowhere: devices that are out of its reach are taken back (upstream's
//! `PostFilter`).

use super::Devices;
use crate::attempt::Attempt;
use machinery_meta::{ObjectKey, Revision};

/// A claim that is to give its devices back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deallocation {
    pub claim: ObjectKey,
    pub uid: Box<str>,
    /// The version that was looked at: a newer one may have been reserved.
    pub revision: Revision,
}

/// The claim that is to give its devices back, if there is one, and the message of the end: upstream says so before what it
/// says of preemption, unless pods are preempted. A claim is picked for its place, where upstream picks at random.
pub(crate) fn after_filters(
    attempt: &Attempt,
    known: &Devices,
    preempts: bool,
    preemption: Option<String>,
) -> (Option<Deallocation>, Option<String>) {
    let devices = attempt.devices_if_known().and_then(|own| own.as_ref().ok());
    let Some(claim) = devices.and_then(|own| own.to_deallocate(attempt.pod(), known)) else {
        return (None, preemption);
    };
    let deallocation = Deallocation {
        claim: claim.key.clone(),
        uid: claim.claim.uid.clone(),
        revision: claim.claim.revision,
    };
    let own = "deallocation of ResourceClaim completed";
    let message = match preemption {
        Some(preemption) if preempts => preemption,
        Some(preemption) => format!("{own}, {preemption}"),
        None => own.to_owned(),
    };
    (Some(deallocation), Some(message))
}
