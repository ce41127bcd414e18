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
    /// It was made for extended resources of an attempt before: it goes.
    pub deletes: bool,
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
    let found = devices.and_then(|own| {
        let unused = own.to_deallocate(attempt.pod(), known);
        let unused = unused.map(|own| (&own.key, &own.claim, false));
        unused.or_else(|| own.left_over().map(|(key, claim)| (key, claim, true)))
    });
    let Some((key, claim, deletes)) = found else {
        return (None, preemption);
    };
    let deallocation = Deallocation {
        claim: key.clone(),
        uid: claim.uid.clone(),
        revision: claim.revision,
        deletes,
    };
    let own = match deletes {
        true => "deletion of ResourceClaim completed",
        false => "deallocation of ResourceClaim completed",
    };
    let message = match preemption {
        Some(preemption) if preempts => preemption,
        Some(preemption) => format!("{own}, {preemption}"),
        None => own.to_owned(),
    };
    (Some(deallocation), Some(message))
}
