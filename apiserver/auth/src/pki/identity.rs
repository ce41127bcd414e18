//! A certificate with its key.

use super::files::Store;
use super::{PkiError, ServingNames};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::net::IpAddr;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, GeneralName, X509Certificate};

/// See the module.
pub struct Identity {
    certificate_pem: String,
    key_pem: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    not_before: Timestamp,
    not_after: Timestamp,
    names: ServingNames,
    subject: Subject,
}

/// Subject of a certificate: the user and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
}

/// Requirements on a stored certificate.
pub(super) enum Wanted<'a> {
    /// At least these names and addresses.
    Names(&'a ServingNames),
    /// This user with exactly these groups.
    Client(&'a Subject),
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

pub(super) fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.ok().filter(|all| !all.is_empty())
}

impl Identity {
    pub(super) fn load(
        store: &Store,
        file: &str,
        now: Timestamp,
        wanted: &Wanted<'_>,
        make: impl FnOnce() -> Result<Self, PkiError>,
    ) -> Result<Self, PkiError> {
        let (crt, key) = (format!("{file}.crt"), format!("{file}.key"));
        if let (Some(certificate), Some(key)) = (store.read(&crt)?, store.read(&key)?) {
            // A leaf that cannot be read (a crash between its two files, say) is simply recreated.
            let says = |kept: &Self| match wanted {
                Wanted::Names(names) => kept.names.is_superset(names),
                Wanted::Client(subject) => kept.subject == **subject,
            };
            let kept = Self::from_pem(certificate, key).filter(|kept| now < kept.renew_at() && says(kept));
            if let Some(kept) = kept {
                return Ok(kept);
            }
        }
        let made = make()?;
        store.write(&key, &made.key_pem)?;
        store.write(&crt, &made.certificate_pem)?;
        Ok(made)
    }

    pub fn from_pem(certificate_pem: String, key_pem: String) -> Option<Self> {
        let chain = certificates(&certificate_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        let (_, leaf) = X509Certificate::from_der(&chain[0]).ok()?;
        let time = |at: i64| Timestamp::from_second(at).ok();
        let not_before = time(leaf.validity().not_before.timestamp())?;
        let not_after = time(leaf.validity().not_after.timestamp())?;
        let names = names(&leaf);
        let subject = subject(&leaf);
        Some(Self {
            certificate_pem,
            key_pem,
            chain,
            key,
            not_before,
            not_after,
            names,
            subject,
        })
    }

    /// Two thirds through its life.
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.as_second() - self.not_before.as_second();
        self.not_before
            .saturating_add(SignedDuration::from_secs(life / 3 * 2))
            .unwrap_or(self.not_after)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// Reports whether the key is the certificate's.
    pub(super) fn has_its_key(&self) -> bool {
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(self.chain.clone(), self.key(), &provider).is_ok()
    }

    /// Names and addresses in the certificate.
    pub fn names(&self) -> &ServingNames {
        &self.names
    }

    #[cfg(test)]
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
}

fn subject(certificate: &X509Certificate<'_>) -> Subject {
    let own = certificate.subject();
    let text = |one: &AttributeTypeAndValue<'_>| one.as_str().unwrap_or_default().to_owned();
    Subject {
        name: own.iter_common_name().last().map(text).unwrap_or_default(),
        groups: own.iter_organization().map(text).collect(),
    }
}

fn names(certificate: &X509Certificate<'_>) -> ServingNames {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return ServingNames::new();
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
