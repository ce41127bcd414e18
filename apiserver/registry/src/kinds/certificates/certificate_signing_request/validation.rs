//! Validation of the form of a CertificateSigningRequest, and preparation of writes through its subresources.

use crate::engine::metadata::restore_member;
use crate::engine::strategy::ObjectPart;
use crate::kinds::certificates::x509;
use crate::shared::validation::{Errors, Path, signer_name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::{Ref, Step, Tree};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
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
    if let Some(problem) = x509::request_problem(&bytes) {
        let shown = if encoded.is_empty() {
            "null".to_owned()
        } else {
            format!("{encoded:?}")
        };
        errors.invalid(&path.child("request"), Shown(shown), problem);
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

/// Restores the spec; `approval` changes conditions only, and times of conditions are set by the server.
pub(crate) fn prepare_for_update(part: ObjectPart, object: &mut Tree, old: &Tree, now: &str) {
    restore_member(object, old, "spec");
    keep_address(object, old);
    match part {
        ObjectPart::Status => keep_decisions(object, old),
        ObjectPart::Other("approval") => {
            let conditions = object.at(&CONDITIONS).map(|own| own.to_json());
            restore_member(object, old, "status");
            object.remove(&CONDITIONS);
            if let Some(Ok(conditions)) = conditions.map(|json| Tree::from_json(&json)) {
                object.set(&CONDITIONS.map(Step::Name), conditions.root());
            }
        }
        _ => return,
    }
    stamp(object, old, now);
}

/// Address from which a kubelet's request for a serving certificate came. Only this server writes it: the approver goes by it.
const REQUESTED_FROM: [&str; 3] = ["metadata", "annotations", "knarr.dev/requested-from"];

/// Notes the address of a new request for a serving certificate.
pub(crate) fn note_address(object: &mut Tree, address: Option<IpAddr>) {
    let is_serving = object.str_at(&["spec", "signerName"]) == "kubernetes.io/kubelet-serving";
    match address.filter(|_| is_serving) {
        Some(address) => object.set_str(&REQUESTED_FROM, &address.to_string()),
        None => drop(object.remove(&REQUESTED_FROM)),
    }
}

/// Keeps what was noted.
fn keep_address(object: &mut Tree, old: &Tree) {
    match old.str_at(&REQUESTED_FROM) {
        "" => drop(object.remove(&REQUESTED_FROM)),
        address => object.set_str(&REQUESTED_FROM, address),
    }
}

const CONDITIONS: [&str; 2] = ["status", "conditions"];

fn conditions(object: &Tree) -> impl Iterator<Item = (usize, Ref<'_>)> {
    let list = object.at(&CONDITIONS).into_iter();
    list.flat_map(Ref::items).enumerate()
}

fn condition_step(index: usize) -> [Step<'static>; 3] {
    [
        Step::Name(CONDITIONS[0]),
        Step::Name(CONDITIONS[1]),
        Step::Index(index),
    ]
}

/// Approving and denying is done through `approval`.
fn keep_decisions(object: &mut Tree, old: &Tree) {
    for decision in ["Approved", "Denied"] {
        let of = |tree: &Tree| -> Vec<usize> {
            let own = conditions(tree).filter(|(_, own)| own.str("type") == decision);
            own.map(|(at, _)| at).collect()
        };
        let (new, before) = (of(object), of(old));
        if new.len() != before.len() {
            continue;
        }
        let kept: Vec<Ref<'_>> = conditions(old).map(|(_, own)| own).collect();
        for (to, from) in new.into_iter().zip(before) {
            object.set(&condition_step(to), kept[from]);
        }
    }
}

fn stamp(object: &mut Tree, old: &Tree, now: &str) {
    let mut missing = Vec::new();
    fn key(own: Ref<'_>) -> [&str; 2] {
        ["type", "status"].map(|name| own.str(name))
    }
    let mut since = HashMap::new();
    for (_, own) in conditions(old) {
        let time = own.str("lastTransitionTime");
        if !time.is_empty() {
            since.entry(key(own)).or_insert(time);
        }
    }
    for (at, condition) in conditions(object) {
        if condition.str("lastUpdateTime").is_empty() {
            missing.push((at, "lastUpdateTime", now.to_owned()));
        }
        if condition.str("lastTransitionTime").is_empty() {
            let since = since.get(&key(condition)).copied().unwrap_or(now);
            missing.push((at, "lastTransitionTime", since.to_owned()));
        }
    }
    for (at, name, time) in missing {
        let [status, list, index] = condition_step(at);
        object.set(&[status, list, index, Step::Name(name)], time.as_str());
    }
}

fn usages(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.list("usages").len() == 0 {
        errors.required(path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in spec.list("usages").enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            errors.not_supported(&path.index(index), usage, &USAGES);
        }
        if seen.contains(&usage) {
            errors.duplicate(&path.index(index), usage);
        }
        seen.insert(usage);
    }
}

/// Requests of the first API version named this signer where they named none; upstream keeps what is stored.
fn signer(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        return errors.invalid(path, name, detail);
    }
    signer_name(errors, path, name);
}

#[cfg(test)]
mod tests {
    use super::{Errors, ObjectPart, Path, Tree, prepare_for_update, signer};

    fn request(spec: &str, status: &str) -> Tree {
        Tree::from_json(&format!(r#"{{"spec":{spec},"status":{status}}}"#)).unwrap()
    }

    #[test]
    fn signing_decision_has_time_and_changes_nothing_else() {
        let old = request(
            r#"{"request":"a"}"#,
            r#"{"certificate":"c","conditions":[{"type":"Approved","status":"True","lastTransitionTime":"1"}]}"#,
        );
        let conditions = r#"[{"type":"Approved","status":"True"},{"type":"Failed","status":"True"}]"#;
        let mut new = request(r#"{"request":"b"}"#, &format!(r#"{{"conditions":{conditions}}}"#));
        prepare_for_update(ObjectPart::Other("approval"), &mut new, &old, "2");
        assert_eq!(
            new.root().to_json(),
            r#"{"spec":{"request":"a"},"status":{"certificate":"c","conditions":[{"lastTransitionTime":"1","lastUpdateTime":"2","status":"True","type":"Approved"},{"lastTransitionTime":"2","lastUpdateTime":"2","status":"True","type":"Failed"}]}}"#
        );
        let mut new = request("{}", r#"{"conditions":[{"type":"Approved","status":"False"}]}"#);
        prepare_for_update(ObjectPart::Status, &mut new, &old, "2");
        assert_eq!(
            new.get("status").unwrap().to_json(),
            r#"{"conditions":[{"lastTransitionTime":"1","lastUpdateTime":"2","status":"True","type":"Approved"}]}"#,
            "a decision is not changed through status"
        );
    }

    #[test]
    fn address_of_a_request_for_serving_is_noted_by_the_server_alone() {
        const SERVING: &str = r#"{"signerName":"kubernetes.io/kubelet-serving"}"#;
        let noted = |object: &Tree| object.str_at(&super::REQUESTED_FROM).to_owned();
        let address = Some("192.0.2.7".parse().unwrap());
        let mut new = request(SERVING, "{}");
        new.set_str(&super::REQUESTED_FROM, "192.0.2.8");
        super::note_address(&mut new, address);
        assert_eq!(noted(&new), "192.0.2.7");
        let (old, mut changed) = (new.clone(), new.clone());
        changed.set_str(&super::REQUESTED_FROM, "192.0.2.8");
        for part in [
            ObjectPart::Main,
            ObjectPart::Status,
            ObjectPart::Other("approval"),
        ] {
            prepare_for_update(part, &mut changed, &old, "1");
            assert_eq!(noted(&changed), "192.0.2.7");
        }
        super::note_address(&mut new, None);
        assert_eq!(noted(&new), "", "in process nobody saw it");
        let mut other = request(r#"{"signerName":"example.com/a"}"#, "{}");
        super::note_address(&mut other, address);
        assert_eq!(noted(&other), "");
    }

    /// Each answer is upstream's.
    #[test]
    fn signers_are_named_as_upstream_has_them() {
        for (name, expected) in [
            ("kubernetes.io/kubelet-serving", None),
            (
                "kubernetes.io/legacy-unknown",
                Some(
                    r#"Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version"#,
                ),
            ),
            (
                "example.com/a/b",
                Some(
                    r#"Invalid value: "example.com/a/b": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
                ),
            ),
            (
                "local/me",
                Some(
                    r#"Invalid value: "local": should be a domain with at least two segments separated by dots"#,
                ),
            ),
        ] {
            let mut errors = Errors::new();
            signer(&mut errors, &Path::of("signerName"), name);
            let found: Vec<String> = errors.into_list().iter().map(|error| error.message()).collect();
            assert_eq!(found, Vec::from_iter(expected), "{name}");
        }
    }
}
