//! Validation of Namespaces: the names of finalizers, and a phase that agrees with the deletion timestamp.

use crate::engine::metadata::STANDARD_FINALIZERS;
use crate::kinds::core::service::shares;
use crate::shared::validation::{Errors, Path, qualified};
use apiserver_storage::{OWN_SHARE, share_bytes};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new Namespace.
pub(super) fn validate(namespace: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    for finalizer in finalizers(namespace) {
        finalizer_name(&mut errors, &path.child("finalizers"), finalizer);
    }
    own_share(&mut errors, namespace);
    errors.into_list()
}

/// Every problem of a changed Namespace.
pub(super) fn validate_update(namespace: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    own_share(&mut errors, namespace);
    errors.into_list()
}

/// Checks that shares can be read: others would bound nothing.
fn own_share(errors: &mut Errors, namespace: Ref<'_>) {
    let bytes = "must be a quantity of bytes, such as 2Gi; 0 sets no bound";
    own_label(errors, namespace, OWN_SHARE, bytes, |share| {
        share_bytes(share).is_some()
    });
    for label in [shares::CLUSTER_IPS, shares::NODE_PORTS] {
        let number = "must be a number, such as 1000; 0 sets no bound";
        own_label(errors, namespace, label, number, |share| {
            shares::number(share).is_some()
        });
    }
}

fn own_label(
    errors: &mut Errors,
    namespace: Ref<'_>,
    label: &str,
    detail: &str,
    is_readable: impl Fn(&str) -> bool,
) {
    let share = namespace.at(&["metadata", "labels", label]).and_then(Ref::as_str);
    if let Some(share) = share.filter(|share| !is_readable(share)) {
        let path = Path::of("metadata");
        errors.invalid(&path.child("labels").key(label), share, detail);
    }
}

/// Every problem of changed finalizers.
pub(super) fn validate_finalize(namespace: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("spec");
    let path = path.child("finalizers");
    for (index, finalizer) in finalizers(namespace).enumerate() {
        finalizer_name(&mut errors, &path.index(index), finalizer);
    }
    errors.into_list()
}

/// Every problem of a changed status: it is going exactly when it was deleted.
pub(super) fn validate_status(namespace: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let deleted = !namespace.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    let (phase, detail) = if deleted {
        let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
        ("Terminating", detail)
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    let own = namespace.str_at(&["status", "phase"]);
    if own != phase {
        errors.invalid(&Path::of("status").child("Phase"), own, detail);
    }
    errors.into_list()
}

fn finalizers(namespace: Ref<'_>) -> impl Iterator<Item = &str> {
    let spec = namespace.get("spec").into_iter();
    spec.flat_map(|spec| spec.list("finalizers"))
        .filter_map(Ref::as_str)
}

fn finalizer_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    qualified(errors, path, name);
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, name, detail);
    }
}
