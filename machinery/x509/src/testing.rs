//! Certificates made for tests.

use crate::{Authorities, PeerCertificate, Unverified, Verified};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// Parameters of a certificate from 2026 to the end of 2035.
pub(crate) fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&[(DnType::CommonName, name.into())]);
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2036, 1, 1);
    params
}

pub(crate) fn subject(parts: &[(DnType, DnValue)]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    for (kind, value) in parts {
        subject.push(kind.clone(), value.clone());
    }
    subject
}

/// Parameters of an authority as `openssl` and `cfssl` make it.
pub(crate) fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params
}

pub(crate) fn client_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

pub(crate) fn root(params: CertificateParams) -> Authority {
    CertifiedIssuer::self_signed(params, key()).unwrap()
}

pub(crate) fn intermediate(params: CertificateParams, by: &Authority) -> Authority {
    CertifiedIssuer::signed_by(params, key(), by).unwrap()
}

pub(crate) fn leaf(params: &CertificateParams, by: &Authority) -> CertificateDer<'static> {
    params.signed_by(&key(), by).unwrap().der().clone()
}

pub(crate) const NOW: &str = "2030-01-01T00:00:00Z";

pub(crate) fn verify_at(
    roots: &[&CertificateDer<'static>],
    chain: &[&CertificateDer<'static>],
    at: &str,
) -> Result<Arc<Verified>, Unverified> {
    let roots = roots.iter().map(|own| (*own).clone()).collect();
    let chain: Vec<_> = chain.iter().map(|own| (*own).clone()).collect();
    let authorities = Authorities::new(roots).unwrap();
    authorities.verified(&PeerCertificate::new(&chain).unwrap(), at.parse().unwrap())
}
