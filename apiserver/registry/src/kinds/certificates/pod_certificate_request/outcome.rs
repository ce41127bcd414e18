//! Validation of a signer's answer: once, either a certificate for the requested key or a refusal.

use super::proof::wanted_key;
use crate::kinds::certificates::x509::{certificate, is_certificate};
use crate::shared::validation::{Errors, Path, conditions};
use jiff::{SignedDuration, Timestamp};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use machinery_x509::{PemBlock, pem_blocks};
use x509_parser::prelude::{GeneralName, X509Certificate};

const ISSUED: &str = "Issued";
/// The answers there are.
const ANSWERS: [&str; 3] = [ISSUED, "Denied", "Failed"];
/// Members of a status that only a certificate brings.
const OF_A_CERTIFICATE: [&str; 4] = ["certificateChain", "notBefore", "notAfter", "beginRefreshAt"];
const TIMES: [(&str, &str); 3] = [
    (
        "notBefore",
        "must be present and consistent with the issued certificate",
    ),
    (
        "notAfter",
        "must be present and consistent with the issued certificate",
    ),
    (
        "beginRefreshAt",
        "must be present and in the range [notbefore+10min, notafter-10min]",
    ),
];
const MAX_CHAIN_BYTES: usize = 100 * 1024;
/// Tolerated difference between a signer's clock and the server's.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
const MIN_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Least time from the start of a certificate to the request for the next one, and from there to its end.
const MIN_REFRESH: SignedDuration = SignedDuration::from_mins(10);

/// Every problem of a changed status.
pub fn validate_status(new: Ref<'_>, old: Ref<'_>, now: Timestamp) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status");
    let Some(status) = new.get("status") else {
        return Vec::new();
    };
    known_conditions(&mut errors, status);
    conditions(&mut errors, &path.child("conditions"), status);
    if !errors.is_empty() {
        return errors.into_list();
    }
    let is_same = old.get("status") == Some(status);
    match (answer(old), answer(new)) {
        (Some(_), _) if !is_same => errors.invalid_unshown(
            &path,
            "immutable after PodCertificateRequest is issued, denied, or failed",
        ),
        (Some(_), _) => {}
        (None, Some(ISSUED)) => issued(&mut errors, new, status, now),
        (None, Some(_)) if OF_A_CERTIFICATE.iter().any(|name| is_set(status, name)) => errors
            .invalid_unshown(
                &path,
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            ),
        (None, None) if !is_same => errors.invalid_unshown(
            &path,
            r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#,
        ),
        (None, _) => {}
    }
    errors.into_list()
}

fn is_set(status: Ref<'_>, name: &str) -> bool {
    !status.str(name).is_empty()
}

/// The one of [`ANSWERS`] that a request has.
fn answer(request: Ref<'_>) -> Option<&'static str> {
    let status = request.get("status")?;
    let given = |kind: &&str| {
        let mut own = status.list("conditions");
        own.any(|own| own.str("type") == *kind && own.str("status") == "True")
    };
    ANSWERS.into_iter().find(given)
}

/// Upstream writes the index with a dot before it here.
fn known_conditions(errors: &mut Errors, status: Ref<'_>) {
    let path = Path::of("status");
    let list = path.child("conditions");
    let mut known = 0;
    for (index, own) in status.list("conditions").enumerate() {
        let step = format!("[{index}]");
        let at = list.child(&step);
        let kind = own.str("type");
        if !ANSWERS.contains(&kind) {
            errors.not_supported(&at.child("type"), kind, &ANSWERS);
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#;
            errors.invalid(&at.child("type"), kind, detail);
        }
        if own.str("status") != "True" {
            errors.not_supported(&at.child("status"), own.str("status"), &["True"]);
        }
    }
}

/// The first thing wrong with a certificate that was issued.
fn issued(errors: &mut Errors, request: Ref<'_>, status: Ref<'_>, now: Timestamp) {
    let path = Path::of("status");
    let at = path.child("certificateChain");
    let chain = status.str("certificateChain");
    if chain.len() > MAX_CHAIN_BYTES {
        return errors.too_long(&at, MAX_CHAIN_BYTES);
    }
    let all = pem_blocks(chain.as_bytes());
    let Some(first) = all.first() else {
        let detail = "issued certificate chain must contain at least one certificate";
        return errors.invalid(&at, chain, detail);
    };
    if !is_certificate(first) {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return errors.invalid(&at, chain, detail);
    }
    let Some(leaf) = certificate(&first.content) else {
        return errors.invalid(&at, chain, "leaf certificate does not parse as valid X.509");
    };
    names(errors, &at, &leaf);
    let Some(wanted) = request.get("spec").and_then(|spec| wanted_key(errors, spec)) else {
        return;
    };
    if leaf.public_key().raw != wanted.as_slice() {
        let detail = "leaf certificate was not issued to the requested public key";
        return errors.invalid(&at, chain, detail);
    }
    let before = errors.len();
    times(errors, request, status, &leaf, now);
    if errors.len() == before {
        rest_of_chain(errors, &at, chain, &all[1..]);
    }
}

/// Names that readers of certificates would choke on.
fn names(errors: &mut Errors, path: &Path<'_>, leaf: &X509Certificate<'_>) {
    let Ok(Some(extension)) = leaf.subject_alternative_name() else {
        return;
    };
    let names = &extension.value.general_names;
    for name in names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    }) {
        if name.is_empty() {
            errors.invalid(path, name, "leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            let detail = "leaf certificate's DNSName should not contain '..'";
            errors.invalid(path, name, detail);
        }
        if name.starts_with('.') || name.ends_with('.') {
            let detail = "leaf certificate's DNSName should not start or end with '.'";
            errors.invalid(path, name, detail);
        }
    }
    for address in names.iter().filter_map(|name| match name {
        GeneralName::RFC822Name(address) => Some(*address),
        _ => None,
    }) {
        if !is_mail_address(address) {
            let detail = "leaf certificate should not contain invalid EmailAddress";
            errors.invalid(path, address, detail);
        }
    }
}

/// `somebody@somewhere`, both in one piece.
fn is_mail_address(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && !part
                .chars()
                .any(|own| own.is_whitespace() || own.is_control() || "()<>[]:;@\\,\"".contains(own))
    };
    text.rsplit_once('@')
        .is_some_and(|(local, domain)| plain(local) && plain(domain))
}

/// The first time that does not fit the certificate, the request or the clock.
fn times(errors: &mut Errors, request: Ref<'_>, status: Ref<'_>, leaf: &X509Certificate<'_>, now: Timestamp) {
    let path = Path::of("status");
    let before = errors.len();
    for (name, detail) in TIMES {
        if !is_set(status, name) {
            errors.required(&path.child(name), detail);
        }
    }
    if errors.len() > before {
        return;
    }
    let time = |name: &str| status.str(name).parse::<Timestamp>().unwrap_or_default();
    let mut refuse = |name: &str, detail: &str| errors.invalid(&path.child(name), status.str(name), detail);
    let [start, end, refresh] = TIMES.map(|(name, _)| time(name));
    let validity = leaf.validity();
    if start.as_second() != validity.not_before.timestamp() {
        refuse(
            "notBefore",
            "must be set to the NotBefore time encoded in the leaf certificate",
        );
    } else if start.duration_since(now).abs() >= SKEW {
        refuse(
            "notBefore",
            "must be set to within 5 minutes of kube-apiserver's current time",
        );
    } else if end.as_second() != validity.not_after.timestamp() {
        refuse(
            "notAfter",
            "must be set to the NotAfter time encoded in the leaf certificate",
        );
    } else if let Some(detail) = lifetime_problem(request, end.duration_since(start)) {
        let nanoseconds = i64::try_from(end.duration_since(start).as_nanos()).unwrap_or(i64::MAX);
        errors.invalid(&path.child("certificateChain"), nanoseconds, detail);
    } else if refresh.duration_since(start) < MIN_REFRESH {
        refuse(
            "beginRefreshAt",
            "must be at least 10 minutes after status.notBefore",
        );
    } else if end.duration_since(refresh) < MIN_REFRESH {
        refuse(
            "beginRefreshAt",
            "must be at least 10 minutes before status.notAfter",
        );
    }
}

fn lifetime_problem(request: Ref<'_>, lifetime: SignedDuration) -> Option<String> {
    let most = request
        .at(&["spec", "maxExpirationSeconds"])
        .and_then(Ref::as_i64)
        .unwrap_or(0);
    if lifetime < MIN_LIFETIME {
        return Some("leaf certificate lifetime must be >= 1 hour".to_owned());
    }
    (lifetime > SignedDuration::from_secs(most))
        .then(|| format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"))
}

/// The signers of the first are certificates too.
fn rest_of_chain(errors: &mut Errors, path: &Path<'_>, chain: &str, rest: &[PemBlock]) {
    for block in rest {
        if !is_certificate(block) {
            // Upstream's spelling.
            let detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return errors.invalid(path, chain, detail);
        }
        if certificate(&block.content).is_none() {
            let detail = "intermediate certificate does not parse as valid X.509";
            return errors.invalid(path, chain, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use machinery_schema::Tree;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    const NOW: &str = "2026-01-01T00:01:00Z";
    const TIMES: &str = r#""notBefore":"2026-01-01T00:00:00Z","notAfter":"2026-01-02T00:00:00Z","beginRefreshAt":"2026-01-01T12:00:00Z""#;

    fn request(key: &KeyPair, status: &str) -> Tree {
        let stub = CertificateParams::default().serialize_request(key).unwrap();
        let stub = STANDARD.encode(stub.der());
        let spec = format!(r#"{{"stubPKCS10Request":"{stub}","maxExpirationSeconds":86400}}"#);
        Tree::from_json(&format!(r#"{{"spec":{spec},"status":{status}}}"#)).unwrap()
    }

    /// The certificate of a day, as JSON.
    fn certificate(key: &KeyPair, name: &str) -> String {
        let mut signed = CertificateParams::default();
        signed.not_before = date_time_ymd(2026, 1, 1);
        signed.not_after = date_time_ymd(2026, 1, 2);
        let name = rcgen::SanType::DnsName(name.try_into().unwrap());
        signed.subject_alt_names.push(name);
        serde_json::to_string(&signed.self_signed(key).unwrap().pem()).unwrap()
    }

    fn answered(kind: &str, rest: &str) -> String {
        let since = "2026-01-01T00:00:00Z";
        let condition =
            format!(r#"{{"type":"{kind}","status":"True","reason":"R","lastTransitionTime":"{since}"}}"#);
        format!(r#"{{"conditions":[{condition}]{rest}}}"#)
    }

    #[track_caller]
    fn check(key: &KeyPair, old: &str, new: &str, expected: &[&str]) {
        let (new, old) = (request(key, new), request(key, old));
        let found = validate_status(new.root(), old.root(), NOW.parse().unwrap());
        let found: Vec<String> = found
            .iter()
            .map(|error| format!("{}: {}", error.path, error.detail))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn pod_certificate_is_for_the_requested_key() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let issued = |key: &KeyPair, name: &str, times: &str| {
            let chain = certificate(key, name);
            answered(ISSUED, &format!(r#","certificateChain":{chain},{times}"#))
        };
        check(&key, "{}", &issued(&key, "pod", TIMES), &[]);
        check(
            &key,
            "{}",
            &issued(&other, "pod", TIMES),
            &["status.certificateChain: leaf certificate was not issued to the requested public key"],
        );
        check(
            &key,
            "{}",
            &issued(&key, ".pod", TIMES),
            &["status.certificateChain: leaf certificate's DNSName should not start or end with '.'"],
        );
        let late = TIMES.replace("T12:00:00Z", "T23:55:00Z");
        check(
            &key,
            "{}",
            &issued(&key, "pod", &late),
            &["status.beginRefreshAt: must be at least 10 minutes before status.notAfter"],
        );
        let wrong = TIMES.replace("2026-01-02", "2026-01-03");
        check(
            &key,
            "{}",
            &issued(&key, "pod", &wrong),
            &["status.notAfter: must be set to the NotAfter time encoded in the leaf certificate"],
        );
    }

    #[test]
    fn pod_certificate_outcome_is_set_once_alone() {
        let key = KeyPair::generate().unwrap();
        check(&key, "{}", &answered("Denied", ""), &[]);
        check(
            &key,
            "{}",
            &answered("Failed", r#","notBefore":"2026-01-01T00:00:00Z""#),
            &[
                "status: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            ],
        );
        check(
            &key,
            &answered("Denied", ""),
            &answered("Failed", ""),
            &["status: immutable after PodCertificateRequest is issued, denied, or failed"],
        );
        check(
            &key,
            "{}",
            r#"{"notBefore":"2026-01-01T00:00:00Z"}"#,
            &[r#"status: status is immutable unless transitioning to "Issued", "Denied", or "Failed""#],
        );
    }
}
