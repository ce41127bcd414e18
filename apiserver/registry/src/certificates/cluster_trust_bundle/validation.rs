//! What makes a ClusterTrustBundle acceptable (upstream's `pkg/apis/certificates/validation`).

use crate::validation::{Errors, Path, immutable, signer_name, trust_bundle_name_problems};
use machinery_meta::FieldError;
use machinery_schema::Ref;

/// Every problem of a new one: its name goes with its signer.
pub fn validate(bundle: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (name, signer) = (
        bundle.str_at(&["metadata", "name"]),
        bundle.str_at(&["spec", "signerName"]),
    );
    // That there must be one is said of every kind.
    if !name.is_empty() {
        let problems = trust_bundle_name_problems(signer, name, false);
        errors.all_invalid(&Path::of("metadata").child("name"), name, problems);
    }
    if !signer.is_empty() {
        signer_name(&mut errors, &Path::of("spec").child("signerName"), signer);
    }
    errors.into_list()
}

/// The signer stays.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = ["spec", "signerName"];
    immutable(
        &mut errors,
        &Path::of("spec").child("signerName"),
        new.at(&path),
        old.at(&path),
        "field is immutable",
    );
    errors.into_list()
}
