//! Requests that are read, and certificates that are made for them.

use crate::testing::{self, NOW, authority_params, root};
use crate::{
    CertificateRequest, Issue, IssuingAlgorithm, RequestError, Usages, first_certificate_validity,
    public_key_pin,
};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
    SigningKey,
};
use rustls::pki_types::CertificateDer;

/// An attribute that Go does not carry over.
const USER_ID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57_683, 2];

fn request_params(names: &[(DnType, &str)], alternative: Vec<SanType>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, name) in names {
        params.distinguished_name.push(kind.clone(), *name);
    }
    params.subject_alt_names = alternative;
    params
}

fn request_of(params: &CertificateParams, key: &KeyPair) -> String {
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn alternative_names() -> Vec<SanType> {
    vec![
        SanType::DnsName("node.example".try_into().unwrap()),
        SanType::IpAddress("192.0.2.7".parse().unwrap()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
        SanType::Rfc822Name("a@example.com".try_into().unwrap()),
        SanType::URI("https://example.com/a".try_into().unwrap()),
    ]
}

fn node() -> [(DnType, &'static str); 2] {
    [
        (DnType::OrganizationName, "system:nodes"),
        (DnType::CommonName, "system:node:n1"),
    ]
}

#[test]
fn requests_are_read_with_their_names() {
    let key = KeyPair::generate().unwrap();
    let text = request_of(&request_params(&node(), alternative_names()), &key);
    let read = CertificateRequest::from_pem(text.as_bytes()).unwrap();
    assert_eq!(read.common_name, "system:node:n1");
    assert_eq!(read.organizations, ["system:nodes"]);
    assert_eq!(read.dns_names, ["node.example"]);
    let addresses: Vec<String> = read.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.7", "2001:db8::7"]);
    assert_eq!(read.emails, ["a@example.com"]);
    assert_eq!(read.uris, ["https://example.com/a"]);
}

#[test]
fn texts_that_are_no_requests_are_refused() {
    let key = KeyPair::generate().unwrap();
    let text = request_of(&request_params(&node(), Vec::new()), &key);
    let read = |text: &str| CertificateRequest::from_pem(text.as_bytes()).map(|_| ());
    assert_eq!(read(""), Err(RequestError::NoRequest));
    assert_eq!(read(&key.serialize_pem()), Err(RequestError::NoRequest));
    let broken = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    assert!(matches!(read(broken), Err(RequestError::Malformed(_))));
    // Another key's signature: the last bytes are the signature's.
    let (_, mut der) = crate::pem::first(text.as_bytes()).unwrap();
    let last = der.len() - 1;
    der[last] ^= 1;
    use base64::Engine as _;
    let forged = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        base64::engine::general_purpose::STANDARD.encode(der)
    );
    assert!(read(&forged).is_err());
}

fn issued(params: &CertificateParams, words: &[&str]) -> (testing::Authority, CertificateDer<'static>) {
    let authority = root(authority_params("kubernetes"));
    let request = request_of(params, &KeyPair::generate().unwrap());
    let issue = Issue {
        request: &CertificateRequest::from_pem(request.as_bytes()).unwrap(),
        usages: &Usages::of(words).unwrap(),
        serial: [0xff; 16],
        not_before: "2029-01-01T00:00:00Z".parse().unwrap(),
        not_after: "2031-01-01T00:00:00Z".parse().unwrap(),
        authority: authority.der(),
        algorithm: IssuingAlgorithm::EcdsaSha256,
    };
    let to_be_signed = issue.to_be_signed().unwrap();
    let signature = authority.key().sign(&to_be_signed).unwrap();
    let certificate = CertificateDer::from(issue.signed(&to_be_signed, &signature));
    (authority, certificate)
}

#[test]
fn certificates_of_requests_are_vouched_for_and_name_the_requested_user() {
    let mut names = node().to_vec();
    names.push((DnType::CustomDnType(USER_ID.to_vec()), "forged-uid"));
    let usages = ["client auth", "digital signature"];
    let (authority, certificate) = issued(&request_params(&names, Vec::new()), &usages);
    let verified = testing::verify_at(&[authority.der()], &[&certificate], NOW).unwrap();
    let user = verified.user.clone().unwrap().unwrap();
    assert_eq!(user.name, "system:node:n1");
    assert_eq!(user.groups, ["system:nodes"]);
    assert_eq!(user.uid, "", "no attribute is carried over that Go does not know");
    let late = testing::verify_at(&[authority.der()], &[&certificate], "2031-01-01T00:00:01Z");
    assert!(late.is_err());
    let other = root(authority_params("kubernetes"));
    assert!(testing::verify_at(&[other.der()], &[&certificate], NOW).is_err());
}

#[test]
fn certificates_for_servers_prove_no_client() {
    let usages = ["server auth", "digital signature"];
    let (authority, certificate) = issued(&request_params(&node(), alternative_names()), &usages);
    assert!(testing::verify_at(&[authority.der()], &[&certificate], NOW).is_err());
}

/// Another implementation's reader agrees on what was written.
#[test]
fn certificates_of_requests_have_usages_and_names() {
    let usages = ["server auth", "digital signature", "key encipherment"];
    let params = request_params(&node(), alternative_names());
    let (authority, certificate) = issued(&params, &usages);
    let own = crate::certificate::Certificate::read(&certificate).unwrap();
    assert_eq!(own.version, 3);
    assert_eq!((own.serial.len(), own.serial[0]), (16, 0x7f));
    assert_eq!(own.extensions.names.dns, ["node.example"]);
    assert_eq!(own.extensions.names.addresses.len(), 2);
    assert_eq!(own.extensions.names.emails, ["a@example.com"]);
    assert_eq!(own.extensions.names.uris, ["https://example.com/a"]);
    assert!(!own.extensions.authority.unwrap().is_authority);
    let parent = crate::certificate::Certificate::read(authority.der()).unwrap();
    assert_eq!(own.extensions.authority_key_id, parent.extensions.subject_key_id);
    assert!(own.is_signed_with(&parent));
    // What rcgen makes of the same names and usages differs in nothing that is read.
    let mut same = testing::params("system:node:n1");
    same.distinguished_name = params.distinguished_name.clone();
    same.subject_alt_names = alternative_names();
    same.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    same.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let same = testing::leaf(&same, &authority);
    let same = crate::certificate::Certificate::read(&same).unwrap();
    assert_eq!(own.subject, same.subject);
    assert_eq!(own.issuer, same.issuer);
}

#[test]
fn validity_of_a_certificate_is_read_from_its_text() {
    let authority = root(authority_params("kubernetes"));
    let (from, until) = first_certificate_validity(authority.pem().as_bytes()).unwrap();
    assert_eq!(from.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(until.to_string(), "2036-01-01T00:00:00Z");
    assert_eq!(first_certificate_validity(b"garbage"), None);
}

/// As `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -hex` says it.
#[test]
fn pins_are_of_the_public_key_alone() {
    let authority = root(authority_params("kubernetes"));
    let again = authority_params("another").self_signed(authority.key()).unwrap();
    let pin = public_key_pin(authority.der()).unwrap();
    assert_eq!(pin.len(), 64);
    assert_eq!(public_key_pin(again.der()).unwrap(), pin);
    assert_ne!(
        public_key_pin(root(authority_params("kubernetes")).der()).unwrap(),
        pin
    );
    assert_eq!(public_key_pin(b"garbage"), None);
}
