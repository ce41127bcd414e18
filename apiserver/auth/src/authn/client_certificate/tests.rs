use super::*;
use crate::pki::{Identity, Pki, ServingNames};
use crate::testing::block_on;
use http::HeaderMap;
use jiff::SignedDuration;
use parking_lot::Mutex;
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn pki() -> Pki {
    Pki::generate(&ServingNames::default(), now()).unwrap()
}

fn authenticator(authorities: &[&Pki]) -> ClientCertificates {
    let authorities: Vec<_> = authorities
        .iter()
        .map(|pki| pki.cluster.certificate().clone())
        .collect();
    ClientCertificates::new(&authorities).unwrap()
}

fn name(authenticator: &ClientCertificates, peer: &PeerCertificate, at: Timestamp) -> Option<String> {
    let credentials = Credentials {
        peer: Some(peer),
        headers: &HeaderMap::new(),
        path: "/api",
        client: None,
        now: at,
    };
    match block_on(authenticator.authenticate(&credentials)) {
        Outcome::User(found) => Some(found.user.name),
        _ => None,
    }
}

fn peer(identity: &Identity) -> PeerCertificate {
    PeerCertificate::new(identity.chain()).unwrap()
}

#[test]
fn client_authorities_may_be_many_and_are_replaced_under_open_connections() {
    let (ours, theirs) = (pki(), pki());
    let both = authenticator(&[&ours, &theirs]);
    let client = |pki: &Pki, name: &str| peer(&pki.cluster.client(name, None, now()).unwrap());
    let (of_ours, of_theirs) = (client(&ours, "ann"), client(&theirs, "ben"));
    assert_eq!(name(&both, &of_ours, now()).as_deref(), Some("ann"));
    assert_eq!(name(&both, &of_theirs, now()).as_deref(), Some("ben"));
    both.replace(&[ours.cluster.certificate().clone()]).unwrap();
    assert_eq!(name(&both, &of_ours, now()).as_deref(), Some("ann"));
    assert_eq!(name(&both, &of_theirs, now()), None);
    both.replace(&[theirs.cluster.certificate().clone()]).unwrap();
    assert_eq!(name(&both, &of_theirs, now()).as_deref(), Some("ben"));
}

#[test]
fn client_certificate_is_verified_again_on_a_long_connection() {
    let ours = pki();
    let authenticator = authenticator(&[&ours]);
    // Ours ends after ten years, a leaf that it signs in the last of them later still.
    let late = now().checked_add(SignedDuration::from_hours(24 * 3_640)).unwrap();
    let open = peer(&ours.cluster.client("ann", None, late).unwrap());
    assert!(name(&authenticator, &open, late).is_some());
    let end = now().checked_add(SignedDuration::from_hours(24 * 3_660)).unwrap();
    assert_eq!(name(&authenticator, &open, end), None, "the authority has ended");
}

#[test]
fn client_certificate_is_measured_with_every_request() {
    let (ours, theirs) = (pki(), pki());
    let authenticator = authenticator(&[&ours]);
    let measured = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&measured);
    authenticator.measure_lifetimes(move |seconds| own.lock().push(seconds));
    let known = peer(&ours.cluster.client("ann", None, now()).unwrap());
    let unknown = peer(&theirs.cluster.client("ben", None, now()).unwrap());
    // To midnight, a year from then.
    let year = 364.5 * 86_400.0;
    let hour = SignedDuration::from_hours(1);
    name(&authenticator, &known, now());
    name(&authenticator, &known, now().checked_add(hour).unwrap());
    name(&authenticator, &unknown, now());
    assert_eq!(*measured.lock(), [year, year - 3_600.0, year]);
}

/// Made by `openssl req -x509` and `openssl x509 -req` without extensions; their keys were deleted.
fn version_one(file: &str) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject;
    let path = format!(
        "{}/testdata/authn/version_one/{file}.crt",
        env!("CARGO_MANIFEST_DIR")
    );
    rustls::pki_types::CertificateDer::from_pem_file(path).unwrap()
}

#[test]
fn client_certificate_of_version_one_is_its_authoritys() {
    let users = |authority: &str, leaf: &str, at: &str| {
        let authenticator = ClientCertificates::new(&[version_one(authority)]).unwrap();
        let peer = PeerCertificate::new(&[version_one(leaf)]).unwrap();
        name(&authenticator, &peer, at.parse().unwrap())
    };
    let then = "2026-12-01T00:00:00Z";
    assert_eq!(users("ca", "alice", then).as_deref(), Some("alice"));
    assert_eq!(
        users("ca", "forged", then),
        None,
        "another authority of the same name"
    );
    assert_eq!(users("ca", "alice", "2026-11-01T00:00:00Z"), None, "not yet");
    assert_eq!(users("ca", "alice", "2126-11-01T00:00:00Z"), None, "no longer");
    assert_eq!(users("rca", "sha1", then), None, "signatures on SHA-1 are weak");
}
