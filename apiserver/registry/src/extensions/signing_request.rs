//! What makes a CertificateSigningRequest acceptable, as far as its form goes.

use crate::validation::{Errors, Path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const BLOCK: &str = "-----BEGIN CERTIFICATE REQUEST-----";
/// Ten minutes.
const MIN_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Every problem of a new request; nothing of it changes afterwards.
pub(crate) fn validate(request: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = request.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let encoded = spec.str("request");
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    if !String::from_utf8_lossy(&bytes).contains(BLOCK) {
        let shown = if encoded.is_empty() {
            "null".to_owned()
        } else {
            format!("{encoded:?}")
        };
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid(&path.child("request"), Shown(shown), detail);
    }
    usages(&mut errors, &path.child("usages"), spec);
    signer(&mut errors, &path.child("signerName"), spec.str("signerName"));
    let seconds = spec.get("expirationSeconds").and_then(Ref::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < MIN_SECONDS) {
        let detail = format!("may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)");
        errors.invalid(&path.child("expirationSeconds"), seconds, detail);
    }
    errors.into_list()
}

fn usages(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.list("usages").len() == 0 {
        errors.required(path, "");
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, usage) in spec.list("usages").enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            errors.not_supported(&path.index(index), usage, &USAGES);
        }
        if seen.contains(&usage) {
            errors.duplicate(&path.index(index), usage);
        }
        seen.push(usage);
    }
}

fn signer(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((domain, rest)) = name.split_once('/') else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(path, name, detail);
        return;
    };
    errors.all_invalid(path, name, syntax::dns1123_subdomain(domain));
    if !domain.contains('.') {
        errors.invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        );
    }
    errors.all_invalid(path, name, syntax::dns1123_subdomain(rest));
}
