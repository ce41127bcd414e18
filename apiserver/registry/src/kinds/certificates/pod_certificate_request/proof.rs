//! Proof that the requester has the key: a request signed with it, or, as older nodes send it, the key and a signature
//! of the pod's uid.

use crate::kinds::certificates::public_key::{self, Curve, Kind};
use crate::kinds::certificates::x509;
use crate::shared::validation::{Errors, Path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

const STUB: &str = "stubPKCS10Request";
const KEY: &str = "pkixPublicKey";
const PROOF: &str = "proofOfPossession";
/// Longest key, proof and stub.
const MAX_BYTES: usize = 10 * 1024;
const RSA_BITS: [usize; 2] = [3072, 4096];

/// Every problem of the proof in a spec.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let given = |name: &str| !spec.str(name).is_empty();
    match (given(STUB), given(KEY), given(PROOF)) {
        (true, false, false) => stub(errors, &path.child(STUB), &bytes(spec, STUB)),
        (false, true, true) => key_and_signature(errors, path, spec),
        // Upstream shows none: it would be the whole of the spec.
        _ => errors.invalid_unshown(
            path,
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    }
}

/// The key that was requested, in the form that certificates have it; or what is wrong with it.
pub(super) fn wanted_key(errors: &mut Errors, spec: Ref<'_>) -> Option<Vec<u8>> {
    let path = Path::of("spec");
    if spec.str(STUB).is_empty() {
        let der = bytes(spec, KEY);
        let found = key(&der).map(|key| key.raw.to_vec());
        if found.is_none() {
            errors.invalid_unshown(&path.child(KEY), "must be a valid PKIX-serialized public key");
        }
        return found;
    }
    let der = bytes(spec, STUB);
    let found = x509::request(&der).map(|own| own.certification_request_info.subject_pki.raw.to_vec());
    if found.is_none() {
        errors.invalid_unshown(&path.child(STUB), "must be a valid PKCS#10 CSR");
    }
    found
}

fn bytes(spec: Ref<'_>, name: &str) -> Vec<u8> {
    STANDARD.decode(spec.str(name)).unwrap_or_default()
}

fn key(der: &[u8]) -> Option<SubjectPublicKeyInfo<'_>> {
    let (rest, key) = SubjectPublicKeyInfo::from_der(der).ok()?;
    (rest.is_empty() && public_key::kind(&key).is_some()).then_some(key)
}

fn stub(errors: &mut Errors, path: &Path<'_>, der: &[u8]) {
    if der.len() > MAX_BYTES {
        return errors.too_long(path, MAX_BYTES);
    }
    let Some(request) = x509::request(der) else {
        return errors.invalid_unshown(path, "must be a valid PKCS#10 CSR");
    };
    match public_key::kind(&request.certification_request_info.subject_pki) {
        Some(Kind::Ecdsa(Curve::P224)) => {
            let detail = "elliptic public keys must use curve P256, P384, or P521";
            errors.invalid(path, "curve P-224", detail);
        }
        Some(Kind::Rsa { bits }) if !RSA_BITS.contains(&bits) => wrong_size(errors, path, bits),
        None | Some(Kind::Other) => {
            let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.invalid_unshown(path, detail);
        }
        Some(_) if x509::check_signature(&request).is_err() => {
            errors.invalid_unshown(path, "invalid signature");
        }
        Some(_) => {}
    }
}

fn key_and_signature(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let (at, proof_at) = (path.child(KEY), path.child(PROOF));
    let (der, proof) = (bytes(spec, KEY), bytes(spec, PROOF));
    let shown = || Shown(format!("{:?}", spec.str(KEY)));
    if der.len() > MAX_BYTES {
        return errors.too_long(&at, MAX_BYTES);
    }
    if proof.len() > MAX_BYTES {
        return errors.too_long(&proof_at, MAX_BYTES);
    }
    let Some(key) = key(&der) else {
        return errors.invalid(&at, shown(), "must be a valid PKIX-serialized public key");
    };
    let kind = public_key::kind(&key).unwrap_or(Kind::Other);
    match kind {
        Kind::Ecdsa(Curve::P224) => {
            let detail = "elliptic public keys must use curve P256 or P384";
            errors.invalid(&at, "curve P-224", detail);
        }
        Kind::Rsa { bits } if !RSA_BITS.contains(&bits) => wrong_size(errors, &at, bits),
        Kind::Other => {
            let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.invalid(&at, shown(), detail);
        }
        _ if !public_key::proves(kind, &key, spec.str("podUID").as_bytes(), &proof) => {
            let detail = "could not verify proof-of-possession signature";
            errors.invalid_unshown(&proof_at, detail);
        }
        _ => {}
    }
}

fn wrong_size(errors: &mut Errors, path: &Path<'_>, bits: usize) {
    let detail = "RSA keys must have modulus size 3072 or 4096";
    errors.invalid(path, format!("{bits}-bit modulus"), detail);
}
