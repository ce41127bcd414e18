//! Validation of ClusterTrustBundles (upstream's `pkg/apis/certificates/validation`).

use crate::kinds::certificates::x509;
use crate::shared::validation::{Errors, Path, immutable_text, signer_name, trust_bundle_name_problems};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use machinery_x509::{PemBlock, pem_blocks};
use std::collections::BTreeMap;

const MAX_BYTES: usize = 1 << 20;
const TRUST_BUNDLE: [&str; 2] = ["spec", "trustBundle"];
/// Stands for a value that is too long to show.
const OMITTED: &str = "<value omitted>";

/// Every problem of a new one: its name goes with its signer.
pub fn validate(bundle: Ref<'_>) -> Vec<FieldError> {
    let mut errors = names(bundle);
    anchors(&mut errors, bundle);
    errors.into_list()
}

fn names(bundle: Ref<'_>) -> Errors {
    let mut errors = Errors::new();
    let (name, signer) = (
        bundle.str_at(&["metadata", "name"]),
        bundle.str_at(&["spec", "signerName"]),
    );
    // A missing name is reported for every kind.
    if !name.is_empty() {
        let problems = trust_bundle_name_problems(signer, name, false);
        errors.all_invalid(&Path::of("metadata").child("name"), name, problems);
    }
    if !signer.is_empty() {
        signer_name(&mut errors, &Path::of("spec").child("signerName"), signer);
    }
    errors
}

/// Anchors are certificates of authorities, at least one and none twice.
fn anchors(errors: &mut Errors, bundle: Ref<'_>) {
    let spec = Path::of("spec");
    let path = spec.child("trustBundle");
    let text = bundle.str_at(&TRUST_BUNDLE);
    if text.len() > MAX_BYTES {
        return errors.too_long(&path, MAX_BYTES);
    }
    let blocks = pem_blocks(text.as_bytes());
    let before = errors.len();
    let mut indices: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (index, block) in blocks.iter().enumerate() {
        match anchor_problem(block) {
            Some(problem) => errors.invalid(&path, OMITTED, format!("entry {index} {problem}")),
            None => indices.entry(&block.content).or_default().push(index),
        }
    }
    // Of a malformed bundle nothing more is reported.
    if errors.len() > before {
        return;
    }
    if indices.is_empty() {
        errors.invalid(&path, OMITTED, "at least one trust anchor must be provided");
    }
    let mut twice: Vec<_> = indices.into_values().filter(|own| own.len() > 1).collect();
    twice.sort();
    for own in twice {
        let listed: Vec<String> = own.iter().map(usize::to_string).collect();
        let detail = format!("duplicate trust anchor (indices [{}])", listed.join(" "));
        errors.invalid(&path, OMITTED, detail);
    }
}

fn anchor_problem(block: &PemBlock) -> Option<String> {
    if !x509::is_certificate(block) {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Some("has PEM block headers".to_owned());
    }
    match x509::is_authority(&block.content) {
        None => Some("does not parse as X.509".to_owned()),
        Some(false) => Some("does not have the CA bit set".to_owned()),
        Some(true) => None,
    }
}

/// The signer stays; anchors that stay are not looked at again.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = names(new);
    if new.str_at(&TRUST_BUNDLE) != old.str_at(&TRUST_BUNDLE) {
        anchors(&mut errors, new);
    }
    let path = ["spec", "signerName"];
    immutable_text(
        &mut errors,
        &Path::of("spec").child("signerName"),
        new.at(&path),
        old.at(&path),
        "field is immutable",
    );
    errors.into_list()
}
