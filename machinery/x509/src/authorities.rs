//! Certificate authorities that can be replaced while a server runs.

use crate::certificate::Certificate;
use crate::chain::{Search, Validity};
use crate::der::Malformed;
use crate::peer::{Finding, PeerCertificate, Verified};
use crate::pem;
use crate::unverified::{MAX_CERTIFICATES, Unverified};
use crate::user;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("data does not contain any valid certificates")]
    NoCertificates,
    #[error("a certificate cannot be used as an authority")]
    Unusable(#[from] Malformed),
}

/// All certificates of a PEM bundle. Its other contents are passed over, as upstream's servers do: blocks of other kinds, with headers or
/// broken ones, and text around them.
///
/// # Errors
/// [`AuthoritiesError`] where there is none, or one of them cannot be read.
pub fn certificate_bundle(pem: &str) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let all = pem::certificates(pem.as_bytes());
    if all.is_empty() {
        return Err(AuthoritiesError::NoCertificates);
    }
    all.iter().try_for_each(|one| Certificate::read(one).map(drop))?;
    Ok(all)
}

/// See the module.
pub struct Authorities(ArcSwap<Set>);

struct Set {
    roots: Vec<Root>,
    /// No two sets of authorities in this process share one.
    number: u64,
    /// Number of the set that this one replaced.
    last: u64,
}

struct Root {
    certificate: CertificateDer<'static>,
    /// Encoded, so that only those are read that may be the issuer.
    subject: Vec<u8>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

impl Set {
    fn new(certificates: Vec<CertificateDer<'static>>, last: u64) -> Result<Self, Malformed> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let root = |certificate: CertificateDer<'static>| -> Result<Root, Malformed> {
            let subject = Certificate::read(&certificate)?.subject.to_vec();
            Ok(Root { certificate, subject })
        };
        let mut roots: Vec<Root> = Vec::new();
        for certificate in certificates {
            if !roots.iter().any(|other| other.certificate == certificate) {
                roots.push(root(certificate)?);
            }
        }
        Ok(Self {
            roots,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            last,
        })
    }

    fn examine(&self, peer: &PeerCertificate, now: Timestamp) -> Finding {
        match self.verify(peer.chain(), now) {
            Ok((validity, verified)) => Finding {
                of: self.number,
                from: validity.from,
                until: validity.until,
                found: Ok(Arc::new(verified)),
            },
            Err(why) => Finding::refused(self.number, now, why),
        }
    }

    fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<(Validity, Verified), Unverified> {
        if chain.len() > MAX_CERTIFICATES {
            return Err(Unverified::TooMany);
        }
        let (leaf, rest) = chain.split_first().ok_or(Unverified::UnknownAuthority)?;
        let leaf = Certificate::read(leaf)?;
        let mut intermediates: Vec<Certificate<'_>> = Vec::new();
        for one in rest {
            // A certificate that is there twice is tried once.
            if !intermediates.iter().any(|other| other.der == one.as_ref()) {
                intermediates.push(Certificate::read(one)?);
            }
        }
        let is_issuer = |root: &&Root| {
            let children = intermediates.iter().chain([&leaf]);
            children.into_iter().any(|child| child.issuer == root.subject)
        };
        let issuers = self.roots.iter().filter(is_issuer);
        let roots: Vec<Certificate<'_>> = issuers
            .map(|root| Certificate::read(&root.certificate))
            .collect::<Result<_, _>>()?;
        let is_root = self
            .roots
            .iter()
            .any(|root| root.certificate.as_ref() == leaf.der);
        let validity = Search::new(&intermediates, &roots, now).verify(&leaf, is_root)?;
        let verified = Verified {
            common_name: leaf.name.common_name().to_owned(),
            user: user::user(&leaf),
        };
        Ok((validity, verified))
    }
}

impl Authorities {
    /// # Errors
    /// [`AuthoritiesError`] where one of them cannot be read.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, AuthoritiesError> {
        Ok(Self(ArcSwap::from_pointee(Set::new(certificates, 0)?)))
    }

    /// Replaces the authorities, for connections that are open too.
    ///
    /// # Errors
    /// [`AuthoritiesError`] where one of them cannot be read; those before stay.
    pub fn replace(&self, certificates: Vec<CertificateDer<'static>>) -> Result<(), AuthoritiesError> {
        let last = self.0.load().number;
        self.0.store(Arc::new(Set::new(certificates, last)?));
        Ok(())
    }

    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let set = self.0.load();
        set.roots.iter().map(|own| own.certificate.clone()).collect()
    }

    /// Returns the identity in the peer's certificate, if it chains to one of the authorities at this moment.
    ///
    /// The finding is kept with the connection as long as the chain counts, and until the authorities change; a refusal for ten
    /// seconds.
    ///
    /// # Errors
    /// [`Unverified`] where none does.
    pub fn verified(&self, peer: &PeerCertificate, now: Timestamp) -> Result<Arc<Verified>, Unverified> {
        let set = self.0.load();
        if let Some(found) = peer.finding(set.number, now) {
            return found;
        }
        let finding = set.examine(peer, now);
        let found = finding.found.clone();
        peer.keep(finding, set.last);
        found
    }
}
