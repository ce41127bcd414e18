//! Public keys of requests: which kinds are taken, and whether a signature was made with one.
//!
//! `ring` verifies no signature on P-521: keys on that curve read, and prove nothing.

use ring::signature::{self as scheme, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::asn1_rs::Oid;
use x509_parser::oid_registry as oid;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

const P521: &[u64] = &[1, 3, 132, 0, 35];
const P224: &[u64] = &[1, 3, 132, 0, 33];

/// A curve that Go knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P224,
    P256,
    P384,
    P521,
}

/// The type of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ed25519,
    Ecdsa(Curve),
    Rsa { bits: usize },
    Other,
}

/// The reason for which a signature is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Unknown,
    #[error("x509: ECDSA verification failure")]
    Ecdsa,
    #[error("x509: Ed25519 verification failure")]
    Ed25519,
    #[error("crypto/rsa: verification error")]
    Rsa,
}

/// The kind of a key; nothing for one that does not read.
pub(super) fn kind(key: &SubjectPublicKeyInfo<'_>) -> Option<Kind> {
    let algorithm = &key.algorithm.algorithm;
    if *algorithm == oid::OID_SIG_ED25519 {
        return (key.subject_public_key.data.len() == 32).then_some(Kind::Ed25519);
    }
    if *algorithm == oid::OID_KEY_TYPE_EC_PUBLIC_KEY {
        return curve(&key.algorithm).map(Kind::Ecdsa);
    }
    if *algorithm == oid::OID_PKCS1_RSAENCRYPTION {
        return match key.parsed() {
            Ok(Parsed::RSA(rsa)) => Some(Kind::Rsa { bits: rsa.key_size() }),
            _ => None,
        };
    }
    Some(Kind::Other)
}

fn curve(algorithm: &AlgorithmIdentifier<'_>) -> Option<Curve> {
    let named = algorithm.parameters.as_ref()?.as_oid().ok()?;
    if named == oid::OID_EC_P256 {
        return Some(Curve::P256);
    }
    if named == oid::OID_NIST_EC_P384 {
        return Some(Curve::P384);
    }
    [(P521, Curve::P521), (P224, Curve::P224)]
        .into_iter()
        .find_map(|(numbers, curve)| is(&named, numbers).then_some(curve))
}

fn is(named: &Oid<'_>, numbers: &[u64]) -> bool {
    named.iter().is_some_and(|own| own.eq(numbers.iter().copied()))
}

/// Verifies a signature that was made with `algorithm` and the key.
pub(super) fn verify(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let kind = kind(key).ok_or(SignatureError::Unknown)?;
    let failure = match kind {
        Kind::Ecdsa(_) => SignatureError::Ecdsa,
        Kind::Ed25519 => SignatureError::Ed25519,
        Kind::Rsa { .. } | Kind::Other => SignatureError::Rsa,
    };
    let scheme = scheme_of(kind, &algorithm.algorithm).ok_or(SignatureError::Unknown)?;
    checked(key, scheme, message, signature).ok_or(failure)
}

/// Reports whether the key's owner signed the message, with the one algorithm that upstream accepts for each type of
/// key.
pub(super) fn proves(kind: Kind, key: &SubjectPublicKeyInfo<'_>, message: &[u8], signature: &[u8]) -> bool {
    let scheme: &dyn VerificationAlgorithm = match kind {
        Kind::Ed25519 => &scheme::ED25519,
        Kind::Ecdsa(Curve::P256) => &scheme::ECDSA_P256_SHA256_ASN1,
        Kind::Ecdsa(Curve::P384) => &scheme::ECDSA_P384_SHA256_ASN1,
        Kind::Rsa { .. } => &scheme::RSA_PSS_2048_8192_SHA256,
        Kind::Ecdsa(Curve::P224 | Curve::P521) | Kind::Other => return false,
    };
    checked(key, scheme, message, signature).is_some()
}

fn checked(
    key: &SubjectPublicKeyInfo<'_>,
    scheme: &'static dyn VerificationAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    let key = UnparsedPublicKey::new(scheme, &key.subject_public_key.data);
    key.verify(message, signature).ok()
}

fn scheme_of(kind: Kind, algorithm: &Oid<'_>) -> Option<&'static dyn VerificationAlgorithm> {
    let known: [(Kind, Oid<'_>, &'static dyn VerificationAlgorithm); 5] = [
        (Kind::Ed25519, oid::OID_SIG_ED25519, &scheme::ED25519),
        (
            Kind::Ecdsa(Curve::P256),
            oid::OID_SIG_ECDSA_WITH_SHA256,
            &scheme::ECDSA_P256_SHA256_ASN1,
        ),
        (
            Kind::Ecdsa(Curve::P256),
            oid::OID_SIG_ECDSA_WITH_SHA384,
            &scheme::ECDSA_P256_SHA384_ASN1,
        ),
        (
            Kind::Ecdsa(Curve::P384),
            oid::OID_SIG_ECDSA_WITH_SHA256,
            &scheme::ECDSA_P384_SHA256_ASN1,
        ),
        (
            Kind::Ecdsa(Curve::P384),
            oid::OID_SIG_ECDSA_WITH_SHA384,
            &scheme::ECDSA_P384_SHA384_ASN1,
        ),
    ];
    if matches!(kind, Kind::Rsa { .. }) {
        return rsa_scheme(algorithm);
    }
    known
        .into_iter()
        .find(|(own, name, _)| *own == kind && name == algorithm)
        .map(|(_, _, scheme)| scheme)
}

/// Small keys were always taken in requests; signers may refuse them.
fn rsa_scheme(algorithm: &Oid<'_>) -> Option<&'static dyn VerificationAlgorithm> {
    let known: [(Oid<'_>, &'static dyn VerificationAlgorithm); 3] = [
        (
            oid::OID_PKCS1_SHA256WITHRSA,
            &scheme::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        ),
        (oid::OID_PKCS1_SHA384WITHRSA, &scheme::RSA_PKCS1_2048_8192_SHA384),
        (
            oid::OID_PKCS1_SHA512WITHRSA,
            &scheme::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        ),
    ];
    known
        .into_iter()
        .find(|(name, _)| name == algorithm)
        .map(|(_, scheme)| scheme)
}
