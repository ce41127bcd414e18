//! Finalizers that say how the dependents of an object go.

use machinery_client::Propagation;
use machinery_meta::ObjectHeader;

/// Waits for the object's dependents to go.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Waits for the object's dependents to be set free.
pub(super) const ORPHAN: &str = "orphan";

/// Finalizer step that a deletion waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Orphaning,
    Dependents,
}

/// The step that the object's deletion waits for now; its dependents are orphaned before any would be deleted.
pub(super) fn waits_for(header: &ObjectHeader) -> Option<Waits> {
    if !header.is_deleting() {
        None
    } else if has_finalizer(header, ORPHAN) {
        Some(Waits::Orphaning)
    } else {
        has_finalizer(header, FOREGROUND).then_some(Waits::Dependents)
    }
}

/// Reports whether the object's deletion waits for its dependents to go.
pub(super) fn waits_for_dependents(header: &ObjectHeader) -> bool {
    waits_for(header) == Some(Waits::Dependents)
}

pub(super) fn has_finalizer(header: &ObjectHeader, name: &str) -> bool {
    header.finalizers.iter().any(|own| &**own == name)
}

/// Propagation that the object itself requested by its finalizers.
pub(super) fn propagation_of(header: &ObjectHeader) -> Propagation {
    if has_finalizer(header, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(header, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}
