//! Upstream's tables of signer and cleaner.

use super::sign::{signed, signing_token};
use super::view::{Expiration, TokenView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NOW: &str = "2026-11-28T12:00:00Z";
/// Of `payload` by `tokenSecret` of the token `abc123`.
const SIGNATURE: &str =
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: BTreeMap<_, _> = data
        .iter()
        .map(|(key, value)| (*key, STANDARD.encode(value)))
        .collect();
    json!({"metadata": {"name": name, "namespace": "kube-system"}, "data": data,
        "type": "bootstrap.kubernetes.io/token"})
}

fn signs(name: &str, data: &[(&str, &str)]) -> bool {
    let secret: Secret = serde_json::from_value(secret(name, data)).unwrap();
    signing_token(&secret, now()).is_some()
}

/// Upstream's `TestValidateSecretForSigning`.
#[test]
fn tokens_that_sign_are_upstreams() {
    const NAME: &str = "bootstrap-token-abc123";
    const ID: (&str, &str) = ("token-id", "abc123");
    const SECRET: (&str, &str) = ("token-secret", "tokenSecret");
    const USAGE: (&str, &str) = ("usage-bootstrap-signing", "true");
    assert!(signs(NAME, &[ID, SECRET, USAGE]));
    assert!(signs(
        NAME,
        &[ID, SECRET, USAGE, ("expiration", "2026-11-28T12:00:01Z")]
    ));
    assert!(!signs(NAME, &[ID, SECRET, USAGE, ("expiration", NOW)]));
    assert!(!signs(NAME, &[ID, SECRET, USAGE, ("expiration", "garbage")]));
    assert!(!signs(NAME, &[ID, SECRET]));
    assert!(!signs(NAME, &[ID, SECRET, ("usage-bootstrap-signing", "false")]));
    assert!(!signs(NAME, &[ID, USAGE]));
    assert!(!signs(NAME, &[ID, ("token-secret", ""), USAGE]));
    assert!(!signs(NAME, &[SECRET, USAGE]));
    assert!(!signs(NAME, &[("token-id", "abc124"), SECRET, USAGE]));
    assert!(!signs("abc123", &[ID, SECRET, USAGE]));
    assert!(!signs(
        "bootstrap-token-ABC123",
        &[("token-id", "ABC123"), SECRET, USAGE]
    ));
}

fn map(signature: Option<&str>) -> BTreeMap<String, String> {
    let signature = signature.map(|own| ("jws-kubeconfig-abc123".to_owned(), own.to_owned()));
    let content = ("kubeconfig".to_owned(), "payload".to_owned());
    signature.into_iter().chain([content]).collect()
}

/// Upstream's `TestSimpleSign`, `TestNoSignNeeded`, `TestUpdateSignature`, `TestRemoveSignature`.
#[test]
fn cluster_info_has_signatures_of_tokens_that_are_there() {
    let token = || [("abc123".to_owned(), "tokenSecret".to_owned())].into_iter();
    for before in [None, Some(SIGNATURE), Some("old signature")] {
        assert_eq!(signed(&map(before), token()), Some(map(Some(SIGNATURE))));
    }
    assert_eq!(
        signed(&map(Some("old signature")), std::iter::empty()),
        Some(map(None))
    );
    assert_eq!(signed(&BTreeMap::new(), token()), None, "nothing to sign");
}

/// Upstream's `TestCleanerExpiredUnexpiredToken`, `…NoExpiration` and its test of expirations that cannot be parsed.
#[test]
fn tokens_end_at_upstreams_times() {
    let ends = |data: &[(&str, &str)]| {
        let json = secret("bootstrap-token-abc123", data).to_string();
        object_of::<TokenView>(&json).unwrap().projection.expiration
    };
    assert_eq!(ends(&[]), Expiration::Never);
    assert_eq!(ends(&[("expiration", "garbage")]), Expiration::Unreadable);
    assert_eq!(ends(&[("expiration", NOW)]), Expiration::At(now()));
    for (end, is_over) in [
        (Expiration::Never, false),
        (Expiration::Unreadable, true),
        (Expiration::At(now()), true),
        (Expiration::At("2026-11-28T12:00:01Z".parse().unwrap()), false),
        (Expiration::At("2026-11-28T13:00:01+02:00".parse().unwrap()), true),
    ] {
        assert_eq!(end.is_over(now()), is_over, "{end:?}");
    }
}
