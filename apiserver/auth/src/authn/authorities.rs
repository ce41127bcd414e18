//! Certificate authorities that can be replaced while the server runs, and what a connection's chain was found to be.

use super::Refusal;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, crypto::CryptoProvider};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use x509_parser::oid_registry::OID_PKCS1_SHA1WITHRSA;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// A verified chain is believed this long, so that the end of an authority ends what it signed, on open connections too.
const BELIEVED_SECONDS: i64 = 10;

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("data does not contain any valid certificates")]
    NoCertificates,
    #[error("a certificate cannot be used as an authority")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// All certificates of a PEM bundle; blocks of other kinds are passed over.
///
/// # Errors
/// [`AuthoritiesError`] where there is none, or one of them cannot be an authority.
pub fn certificate_bundle(pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| AuthoritiesError::Unusable(error.into()))?;
    if all.is_empty() {
        return Err(AuthoritiesError::NoCertificates);
    }
    root_store(&all)?;
    Ok(all)
}

fn root_store(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| AuthoritiesError::Unusable(error.into()))?;
    }
    Ok(roots)
}

/// See the module.
pub(super) struct Authorities {
    current: ArcSwap<Current>,
    provider: Arc<CryptoProvider>,
}

struct Current {
    roots: Vec<Root>,
    /// No two sets of authorities in this process share one.
    generation: u64,
    provider: Arc<CryptoProvider>,
    /// The last one made.
    verifier: Mutex<Option<Verifier>>,
}

/// `webpki` takes an authority at any time; in Go it counts within its own validity.
struct Root {
    certificate: CertificateDer<'static>,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Of the authorities that count from one moment to another; `None` where none does.
#[derive(Clone)]
struct Verifier {
    from: Timestamp,
    until: Timestamp,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

impl Root {
    fn read(certificate: CertificateDer<'static>) -> Result<Self, AuthoritiesError> {
        let (_, own) = X509Certificate::from_der(&certificate)
            .map_err(|error| AuthoritiesError::Unusable(error.to_string().into()))?;
        let (validity, time) = (own.validity(), Timestamp::from_second);
        let not_before = time(validity.not_before.timestamp()).unwrap_or(Timestamp::MIN);
        let not_after = time(validity.not_after.timestamp()).unwrap_or(Timestamp::MAX);
        Ok(Self {
            certificate,
            not_before,
            not_after,
        })
    }

    fn counts(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    fn signed(&self, leaf: &X509Certificate<'_>) -> bool {
        X509Certificate::from_der(&self.certificate).is_ok_and(|(_, own)| {
            own.subject().as_raw() == leaf.issuer().as_raw()
                && leaf.verify_signature(Some(own.public_key())).is_ok()
        })
    }
}

impl Current {
    fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthoritiesError> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        root_store(&certificates)?;
        Ok(Self {
            roots: certificates
                .into_iter()
                .map(Root::read)
                .collect::<Result<_, _>>()?,
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            provider: Arc::clone(provider),
            verifier: Mutex::new(None),
        })
    }

    fn verifier(&self, now: Timestamp) -> Result<Arc<dyn ClientCertVerifier>, Refusal> {
        let mut kept = self.verifier.lock();
        let usable = kept.take().filter(|own| own.from <= now && now <= own.until);
        let own = match usable {
            Some(own) => own,
            None => self.build(now).map_err(|error| Refusal::new(error.to_string()))?,
        };
        let verifier = own.verifier.clone();
        *kept = Some(own);
        verifier.ok_or_else(|| Refusal::new("no authority of client certificates is valid now"))
    }

    fn vouch_for(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<(), Refusal> {
        let verified = self
            .verifier(now)
            .and_then(|verifier| verify_chain(&*verifier, chain, now));
        if verified.is_err() && self.signed_version_one(chain, now) {
            return Ok(());
        }
        verified
    }

    /// Reports whether an authority itself has signed a leaf of X.509 version 1. `webpki` reads none; Go takes them, and
    /// `openssl x509 -req` makes them where it is given no extensions.
    fn signed_version_one(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        let Some(Ok((_, leaf))) = chain.first().map(|leaf| X509Certificate::from_der(leaf)) else {
            return false;
        };
        let (validity, moment) = (leaf.validity(), now.as_second());
        let counts = validity.not_before.timestamp() <= moment && moment <= validity.not_after.timestamp();
        leaf.version() == X509Version::V1
            && counts
            && leaf.signature_algorithm.algorithm != OID_PKCS1_SHA1WITHRSA
            && self
                .roots
                .iter()
                .any(|root| root.counts(now) && root.signed(&leaf))
    }

    fn build(&self, now: Timestamp) -> Result<Verifier, AuthoritiesError> {
        let ends = self.roots.iter().flat_map(|own| [own.not_before, own.not_after]);
        let until = ends.filter(|end| *end >= now).min().unwrap_or(Timestamp::MAX);
        let counting: Vec<_> = self.roots.iter().filter(|own| own.counts(now)).collect();
        let counting: Vec<_> = counting.iter().map(|own| own.certificate.clone()).collect();
        let verifier = if counting.is_empty() {
            None
        } else {
            let roots = Arc::new(root_store(&counting)?);
            let built =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&self.provider)).build();
            Some(built.map_err(|error| AuthoritiesError::Unusable(error.into()))?)
        };
        Ok(Verifier {
            from: now,
            until,
            verifier,
        })
    }
}

impl Authorities {
    pub(super) fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            current: ArcSwap::from_pointee(Current::new(certificates, provider)?),
            provider: Arc::clone(provider),
        })
    }

    pub(super) fn replace(&self, certificates: Vec<CertificateDer<'static>>) -> Result<(), AuthoritiesError> {
        self.current
            .store(Arc::new(Current::new(certificates, &self.provider)?));
        Ok(())
    }

    pub(super) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let current = self.current.load();
        current.roots.iter().map(|own| own.certificate.clone()).collect()
    }

    /// What `read` finds in the leaf of a chain that one of the authorities vouches for. The finding is kept with the
    /// connection for a moment, and until the authorities change.
    pub(super) fn verified<T: Clone>(
        &self,
        chain: &[CertificateDer<'_>],
        kept: &Kept<T>,
        now: Timestamp,
        read: impl FnOnce(&[u8]) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let current = self.current.load();
        if let Some(finding) = kept.get(current.generation, now) {
            return finding;
        }
        let finding = current.vouch_for(chain, now).and_then(|()| read(&chain[0]));
        kept.put(current.generation, now, finding.clone());
        finding
    }
}

fn verify_chain(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<(), Refusal> {
    let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let (leaf, rest) = chain
        .split_first()
        .ok_or_else(|| Refusal::new("no client certificate"))?;
    verifier
        .verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(since))
        .map(|_| ())
        .map_err(|error| Refusal::new(format!("verifying the client certificate: {error}")))
}

/// The last finding about a connection's chain.
#[derive(Debug)]
pub(super) struct Kept<T>(Mutex<Option<Finding<T>>>);

#[derive(Debug)]
struct Finding<T> {
    generation: u64,
    at: Timestamp,
    found: Result<T, Refusal>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, generation: u64, now: Timestamp) -> Option<Result<T, Refusal>> {
        let kept = self.0.lock();
        let finding = kept.as_ref().filter(|own| own.generation == generation)?;
        let age = now.as_second() - finding.at.as_second();
        (0..BELIEVED_SECONDS)
            .contains(&age)
            .then(|| finding.found.clone())
    }

    fn put(&self, generation: u64, at: Timestamp, found: Result<T, Refusal>) {
        *self.0.lock() = Some(Finding {
            generation,
            at,
            found,
        });
    }
}
