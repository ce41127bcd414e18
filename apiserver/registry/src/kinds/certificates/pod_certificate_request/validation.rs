//! Validation of PodCertificateRequests (upstream's `pkg/apis/certificates/validation`).

use super::proof;
use crate::shared::validation::{Errors, Path, immutable, signer_name};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

const MAX_UID_BYTES: usize = 128;
/// An hour; and a day for signers of Kubernetes, 91 of them for others.
const MIN_SECONDS: i64 = 60 * 60;
const MAX_SECONDS_OF_KUBERNETES: i64 = 24 * 60 * 60;
const MAX_SECONDS: i64 = 91 * 24 * 60 * 60;
/// The names and uids of those that the certificate will be for.
const HOLDERS: [(&str, &str); 3] = [
    ("podName", "podUID"),
    ("serviceAccountName", "serviceAccountUID"),
    ("nodeName", "nodeUID"),
];

/// Every problem of a new one.
pub fn validate(request: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = request.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    signer_name(&mut errors, &path.child("signerName"), spec.str("signerName"));
    annotations(&mut errors, &path.child("unverifiedUserAnnotations"), spec);
    for (name, uid) in HOLDERS {
        let (name_path, uid_path) = (path.child(name), path.child(uid));
        errors.all_invalid(
            &name_path,
            spec.str(name),
            syntax::dns1123_subdomain(spec.str(name)),
        );
        match spec.str(uid) {
            "" => errors.invalid(&uid_path, "", "must not be empty"),
            long if long.len() > MAX_UID_BYTES => errors.too_long(&uid_path, MAX_UID_BYTES),
            _ => {}
        }
    }
    lifetime(&mut errors, &path, spec);
    errors.into_list()
}

/// Nothing that was requested changes.
pub fn validate_update(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (new, old) = (new.get("spec"), old.get("spec"));
    immutable(&mut errors, &Path::of("spec"), new, old, "field is immutable");
    errors.into_list()
}

fn annotations(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for (key, _) in spec
        .get("unverifiedUserAnnotations")
        .into_iter()
        .flat_map(Ref::entries)
    {
        let key = key.to_lowercase();
        let problems = syntax::qualified_name(&key);
        if problems.is_empty() && !key.contains('/') {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.invalid(path, key.as_str(), detail);
        }
        errors.all_invalid(path, &key, problems);
    }
}

/// Validates the certificate's lifetime and then the proof of possession, which upstream skips if no lifetime is
/// given.
fn lifetime(errors: &mut Errors, spec_path: &Path<'_>, spec: Ref<'_>) {
    let path = spec_path.child("maxExpirationSeconds");
    let Some(seconds) = spec.get("maxExpirationSeconds").and_then(Ref::as_i64) else {
        return errors.required(&path, "must be set");
    };
    let domain = spec.str("signerName").split('/').next().unwrap_or_default();
    let most = if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        MAX_SECONDS_OF_KUBERNETES
    } else {
        MAX_SECONDS
    };
    if !(MIN_SECONDS..=most).contains(&seconds) {
        let detail = format!("must be in the range [{MIN_SECONDS}, {most}]");
        errors.invalid(&path, seconds, detail);
    }
    proof::validate(errors, spec_path, spec);
}

#[cfg(test)]
mod tests {
    use super::validate;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use machinery_schema::Tree;

    #[track_caller]
    fn check(seconds: &str, signer: &str, key: &str, with_proof: bool, expected: &[&str]) {
        let own = rcgen::KeyPair::generate().unwrap();
        let signed = rcgen::CertificateParams::default()
            .serialize_request(&own)
            .unwrap();
        let stub = match with_proof {
            true => STANDARD.encode(signed.der()),
            false => String::new(),
        };
        let holders = r#""podName":"p","podUID":"1","serviceAccountName":"s","serviceAccountUID":"2","nodeName":"n","nodeUID":"3""#;
        let request = format!(
            r#"{{"spec":{{"signerName":"{signer}",{holders},"maxExpirationSeconds":{seconds},"unverifiedUserAnnotations":{{"{key}":""}},"stubPKCS10Request":"{stub}"}}}}"#
        );
        let found = validate(Tree::from_json(&request).unwrap().root());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{request}");
    }

    #[test]
    fn how_long_for_whom_and_with_which_proof() {
        check("7862400", "example.com/s", "A.example.com/B", true, &[]);
        check(
            "86401",
            "kubernetes.io/s",
            "example.com/a",
            true,
            &["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"],
        );
        check(
            "3600",
            "example.com/s",
            "a",
            false,
            &[
                r#"spec.unverifiedUserAnnotations: Invalid value: "a": must be a domain-prefixed key (such as "acme.io/foo")"#,
                "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
            ],
        );
    }
}
