//! A certificate authority and what it signs.

use super::files::Store;
use super::{Identity, PkiError, ServingNames, identity};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use machinery_x509::{Authorities, PeerCertificate};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use std::fmt;

const AUTHORITY_YEARS: i16 = 10;
const LEAF_YEARS: i16 = 1;

/// Its certificate and its key.
pub struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    pub(super) fn load(store: &Store, file: &str, name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let (crt, key) = (format!("{file}.crt"), format!("{file}.key"));
        let found = (store.read(&crt)?, store.read(&key)?);
        if let (Some(pem), Some(key)) = &found {
            return Self::read(pem.clone(), key).ok_or(PkiError::Unreadable { what: crt });
        }
        // A key without a certificate: a crash came between them, or the key alone was given.
        let read =
            |pem: String| KeyPair::from_pem(&pem).map_err(|_| PkiError::Unreadable { what: key.clone() });
        let kept = found.1.map(read).transpose()?;
        let pair = kept.map_or_else(KeyPair::generate, Ok)?;
        let key_pem = pair.serialize_pem();
        let made = CertifiedIssuer::self_signed(authority_params(name, now), pair)?;
        let pem = made.pem();
        // The key first: a certificate without its key would be taken for damage.
        store.write(&key, &key_pem)?;
        store.write(&crt, &pem)?;
        Self::read(pem, &key_pem).ok_or(PkiError::Unreadable { what: crt })
    }

    pub(super) fn read(pem: String, key: &str) -> Option<Self> {
        let der = identity::certificates(&pem)?.into_iter().next()?;
        let issuer = Issuer::from_ca_cert_der(&der, KeyPair::from_pem(key).ok()?).ok()?;
        Some(Self { pem, der, issuer })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub(super) fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    /// A client certificate: the name becomes the user, the group one of its groups.
    pub fn client(&self, name: &str, group: Option<&str>, now: Timestamp) -> Result<Identity, PkiError> {
        let mut params = leaf_params(name, group, now);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A serving certificate for these names and addresses.
    pub fn serving(&self, name: &str, names: &ServingNames, now: Timestamp) -> Result<Identity, PkiError> {
        let mut params = leaf_params(name, None, now);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names =
            CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?.subject_alt_names;
        self.sign(params)
    }

    /// A node's certificate: it serves 10250 and asks the API server with the same one.
    pub fn node(&self, node: &str, names: &ServingNames, now: Timestamp) -> Result<Identity, PkiError> {
        let mut params = leaf_params(&format!("system:node:{node}"), Some("system:nodes"), now);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.subject_alt_names =
            CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?.subject_alt_names;
        self.sign(params)
    }

    /// Reports whether this authority has signed an identity of the user, in that group alone, that is valid now: the key is the
    /// certificate's, and more than a third of its life is left.
    pub fn vouches_for(&self, identity: &Identity, user: &str, group: Option<&str>, now: Timestamp) -> bool {
        let Ok(authorities) = Authorities::new(vec![self.der.clone()]) else {
            return false;
        };
        let peer = PeerCertificate::new(identity.chain());
        let verified = peer.and_then(|peer| authorities.verified(&peer, now).ok());
        let found = verified.and_then(|verified| verified.user.clone().ok().flatten());
        let is_named = found
            .is_some_and(|found| found.name == user && found.groups.iter().map(String::as_str).eq(group));
        is_named && now < identity.renew_at() && identity.has_its_key()
    }

    fn sign(&self, params: CertificateParams) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Identity::from_pem(certificate.pem(), key.serialize_pem()).ok_or_else(|| PkiError::Unreadable {
            what: "a certificate just made".to_owned(),
        })
    }
}

fn authority_params(name: &str, now: Timestamp) -> CertificateParams {
    let mut params = params(name, None, now, AUTHORITY_YEARS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    params
}

fn leaf_params(name: &str, group: Option<&str>, now: Timestamp) -> CertificateParams {
    let mut params = params(name, group, now, LEAF_YEARS);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.use_authority_key_identifier_extension = true;
    params
}

fn params(name: &str, group: Option<&str>, now: Timestamp, years: i16) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    // Whole days, from yesterday: clocks of clients may be behind.
    let today = now.to_zoned(TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(
            i32::from(date.year()),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    params.not_before = date(today.saturating_sub(1.day()));
    params.not_after = date(today.saturating_add(years.years()));
    params
}
