//! A serving certificate of an operator's authority, read as upstream reads it (Go's `tls.X509KeyPair`), with its words.

use jiff::Timestamp;
use machinery_meta::syntax::dns1123_subdomain;
use rustls::SignatureAlgorithm;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::{CertifiedKey, SigningKey};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const CERTIFICATE: &str = "CERTIFICATE";
const PRIVATE_KEY: &str = "PRIVATE KEY";
/// Object identifiers of public keys.
const RSA: &str = "1.2.840.113549.1.1.1";
const ECDSA: &str = "1.2.840.10045.2.1";
const ED25519: &str = "1.3.101.112";

/// A certificate and its key that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServingCertificateError {
    #[error("tls: failed to find any PEM data in {0} input")]
    NoPem(&'static str),
    #[error(
        "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
    )]
    Switched,
    #[error(
        "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{0}]"
    )]
    NoCertificate(String),
    #[error("tls: found a certificate rather than a key in the PEM for the private key")]
    NotAKey,
    #[error(
        "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{0}]"
    )]
    NoKey(String),
    #[error("x509: malformed certificate")]
    Malformed,
    #[error(
        "tls: failed to parse private key (RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384 and Ed25519 can be used)"
    )]
    UnknownKey,
    #[error("tls: private key type does not match public key type")]
    OtherType,
    #[error("tls: private key does not match public key")]
    OtherKey,
}

/// A chain, its leaf first, with the leaf's key.
pub struct ServingCertificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Names that it is listed under where the operator lists none.
    pub(super) names: Vec<String>,
    /// Names that clients accept it for.
    dns_names: Vec<String>,
    subject: String,
    not_before: Timestamp,
    not_after: Timestamp,
    has_names: bool,
    /// The first certificate of the chain that did not sign the one before it.
    out_of_order: Option<usize>,
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("subject", &self.subject)
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl ServingCertificate {
    /// Reads a chain and a key in PEM; the key must be that of the first certificate.
    pub fn from_pem(
        certificate: &str,
        key: &str,
        provider: &CryptoProvider,
    ) -> Result<Self, ServingCertificateError> {
        let chain = chain(certificate)?;
        let key = private_key(key)?;
        let parsed: Result<Vec<_>, _> = chain.iter().map(|der| X509Certificate::from_der(der)).collect();
        let parsed = parsed.map_err(|_| ServingCertificateError::Malformed)?;
        let (_, leaf) = parsed.first().ok_or(ServingCertificateError::Malformed)?;
        let signing = key.iter().find_map(|key| load(key, provider));
        let signing = signing.ok_or(ServingCertificateError::UnknownKey)?;
        check_type(leaf, &*signing)?;
        let time = |at: i64| Timestamp::from_second(at).map_err(|_| ServingCertificateError::Malformed);
        let (dns_names, has_names) = subject_alternative_names(leaf);
        let common_name = leaf.subject().iter_common_name().last();
        let common_name = common_name
            .and_then(|name| name.as_str().ok())
            .unwrap_or_default();
        let listed = is_listed(common_name).then(|| common_name.to_owned());
        let mut signers = parsed.windows(2).enumerate();
        let out_of_order = signers.find(|(_, pair)| pair[0].1.issuer() != pair[1].1.subject());
        let own_key = signing.public_key();
        if own_key.is_some_and(|own| own.as_ref() != leaf.public_key().raw) {
            return Err(ServingCertificateError::OtherKey);
        }
        Ok(Self {
            names: listed.into_iter().chain(dns_names.iter().cloned()).collect(),
            subject: leaf.subject().to_string(),
            not_before: time(leaf.validity().not_before.timestamp())?,
            not_after: time(leaf.validity().not_after.timestamp())?,
            out_of_order: out_of_order.map(|(at, _)| at + 1),
            key: Arc::new(CertifiedKey::new(chain.clone(), signing)),
            dns_names,
            has_names,
        })
    }

    /// The leaf's subject.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Names that it is listed under where the operator lists none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Faults for which clients will refuse it. It is served all the same, as upstream does.
    pub fn faults(&self, now: Timestamp) -> Vec<String> {
        let mut faults = Vec::new();
        if now < self.not_before {
            faults.push(format!("it is not valid before {}", self.not_before));
        }
        if now > self.not_after {
            faults.push(format!("it expired at {}", self.not_after));
        }
        if !self.has_names {
            faults.push("it has no subject alternative name, and clients look at no other".to_owned());
        }
        if let Some(at) = self.out_of_order {
            faults.push(format!(
                "its chain is out of order: certificate {} did not sign the one before it",
                at + 1
            ));
        }
        faults
    }

    /// Reports whether a client that requests this name accepts it; a wildcard stands for the first label.
    pub(super) fn covers(&self, name: &str) -> bool {
        self.dns_names.iter().any(|own| match own.strip_prefix("*.") {
            Some(rest) => name
                .split_once('.')
                .is_some_and(|(first, own)| !first.is_empty() && own == rest),
            None => own == name,
        })
    }
}

fn blocks(text: &str, input: &'static str) -> Result<Vec<pem::Pem>, ServingCertificateError> {
    let blocks = pem::parse_many(text).unwrap_or_default();
    if blocks.is_empty() {
        return Err(ServingCertificateError::NoPem(input));
    }
    Ok(blocks)
}

fn types(blocks: &[pem::Pem]) -> String {
    blocks.iter().map(pem::Pem::tag).collect::<Vec<_>>().join(" ")
}

fn chain(text: &str) -> Result<Vec<CertificateDer<'static>>, ServingCertificateError> {
    let (chain, others): (Vec<_>, Vec<_>) = blocks(text, "certificate")?
        .into_iter()
        .partition(|block| block.tag() == CERTIFICATE);
    match others.as_slice() {
        _ if !chain.is_empty() => Ok(chain
            .into_iter()
            .map(|block| block.into_contents().into())
            .collect()),
        [key] if key.tag().ends_with(PRIVATE_KEY) => Err(ServingCertificateError::Switched),
        others => Err(ServingCertificateError::NoCertificate(types(others))),
    }
}

/// The forms that the key may have: its label says little, as in upstream.
fn private_key(text: &str) -> Result<[PrivateKeyDer<'static>; 3], ServingCertificateError> {
    let blocks = blocks(text, "key")?;
    let is_key = |block: &&pem::Pem| block.tag() == PRIVATE_KEY || block.tag().ends_with(" PRIVATE KEY");
    if let Some(key) = blocks.iter().find(is_key) {
        let der = || key.contents().to_vec();
        return Ok([
            PrivatePkcs1KeyDer::from(der()).into(),
            PrivatePkcs8KeyDer::from(der()).into(),
            PrivateSec1KeyDer::from(der()).into(),
        ]);
    }
    match blocks.as_slice() {
        [certificate] if certificate.tag() == CERTIFICATE => Err(ServingCertificateError::NotAKey),
        blocks => Err(ServingCertificateError::NoKey(types(blocks))),
    }
}

fn load(key: &PrivateKeyDer<'static>, provider: &CryptoProvider) -> Option<Arc<dyn SigningKey>> {
    provider.key_provider.load_private_key(key.clone_key()).ok()
}

fn check_type(leaf: &X509Certificate<'_>, key: &dyn SigningKey) -> Result<(), ServingCertificateError> {
    let found = leaf.public_key().algorithm.algorithm.to_id_string();
    let expected = match key.algorithm() {
        SignatureAlgorithm::RSA => RSA,
        SignatureAlgorithm::ECDSA => ECDSA,
        SignatureAlgorithm::ED25519 => ED25519,
        _ => return Err(ServingCertificateError::UnknownKey),
    };
    (found == expected)
        .then_some(())
        .ok_or(ServingCertificateError::OtherType)
}

/// The domain names in lower case, and whether there is any name or address.
fn subject_alternative_names(leaf: &X509Certificate<'_>) -> (Vec<String>, bool) {
    let extension = leaf.subject_alternative_name().ok().flatten();
    let all = extension.map_or(&[][..], |own| &own.value.general_names[..]);
    let names = all.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    (names.collect(), !all.is_empty())
}

/// A common name that a certificate is listed under: a domain, with a wildcard or without, and no address.
fn is_listed(name: &str) -> bool {
    let domain = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_err() && (name == "*" || dns1123_subdomain(domain).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ServingCertificateError as E;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd};

    fn read(certificate: &str, key: &str) -> Result<ServingCertificate, E> {
        ServingCertificate::from_pem(certificate, key, &rustls::crypto::ring::default_provider())
    }

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(vec!["*.Example.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
        params
    }

    #[track_caller]
    fn check(certificate: &str, key: &str, expected: &E) {
        assert_eq!(read(certificate, key).map(|_| ()), Err(expected.clone()));
    }

    #[test]
    fn serving_certificate_and_key_that_cannot_be_used_are_refused_in_upstreams_words() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let ed = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let (certificate, key) = (params().self_signed(&key).unwrap().pem(), key.serialize_pem());
        assert!(read(&certificate, &key).is_ok());
        check("", &key, &E::NoPem("certificate"));
        check("nonsense", &key, &E::NoPem("certificate"));
        check(&certificate, "", &E::NoPem("key"));
        check(&key, &certificate, &E::Switched);
        check(&certificate, &certificate, &E::NotAKey);
        let public = other.public_key_pem();
        check(&public, &key, &E::NoCertificate("PUBLIC KEY".to_owned()));
        check(
            &certificate,
            &format!("{public}{certificate}"),
            &E::NoKey("PUBLIC KEY CERTIFICATE".to_owned()),
        );
        check(&certificate, &other.serialize_pem(), &E::OtherKey);
        check(&certificate, &ed.serialize_pem(), &E::OtherType);
        let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        check(&certificate, broken, &E::UnknownKey);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        check(broken, &key, &E::Malformed);
        // Blocks of other types before the key are skipped, whatever the label says of its form.
        let labelled = key.replace("PRIVATE KEY", "EC PRIVATE KEY");
        assert!(read(&certificate, &format!("{public}{labelled}")).is_ok());
    }

    #[test]
    fn serving_certificate_says_why_clients_will_refuse_it() {
        let (root_key, key) = (
            KeyPair::generate().unwrap(),
            KeyPair::generate_for(&PKCS_ED25519).unwrap(),
        );
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(rcgen::DnType::CommonName, "root");
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let leaf = params()
            .signed_by(&key, &Issuer::new(root, root_key))
            .unwrap()
            .pem();
        let key = key.serialize_pem();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let good = read(&format!("{leaf}{root_pem}"), &key).unwrap();
        assert_eq!(good.faults(at("2026-11-22T00:00:00Z")), Vec::<String>::new());
        assert_eq!(good.names(), ["*.example.com"]);
        assert!(
            good.covers("a.example.com") && !good.covers("a.b.example.com") && !good.covers("example.com")
        );
        assert_eq!(
            good.faults(at("2027-11-22T00:00:00Z")),
            ["it expired at 2027-01-01T00:00:00Z"]
        );
        assert_eq!(
            good.faults(at("2025-11-22T00:00:00Z")),
            ["it is not valid before 2026-01-01T00:00:00Z"]
        );
        // The leaf comes first; what stands before it is taken for it.
        check(&format!("{root_pem}{leaf}"), &key, &E::OtherType);
        let order = read(&format!("{leaf}{leaf}{root_pem}"), &key).unwrap();
        assert_eq!(
            order.faults(at("2026-11-22T00:00:00Z")),
            ["its chain is out of order: certificate 2 did not sign the one before it"]
        );
        let key = KeyPair::generate().unwrap();
        let mut nameless = params();
        nameless.subject_alt_names.clear();
        let nameless = read(&nameless.self_signed(&key).unwrap().pem(), &key.serialize_pem()).unwrap();
        let faults = nameless.faults(at("2026-11-22T00:00:00Z"));
        assert_eq!(
            faults,
            ["it has no subject alternative name, and clients look at no other"]
        );
    }
}
