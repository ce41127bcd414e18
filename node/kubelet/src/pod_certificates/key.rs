//! Private keys of pods, and the requests that prove their possession.

use machinery_x509::{generate_rsa_key, pem_text};
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, PKCS_RSA_SHA256,
};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Place of the seed in a key of Ed25519 in PKCS #8.
const ED25519_SEED: std::ops::Range<usize> = 16..48;
/// `PrivateKeyInfo` of Ed25519 up to the seed, in the form without the public key (RFC 8410, 7), which every reader takes.
const ED25519_PREFIX: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

/// A key could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    /// This node makes no keys of the type; that does not change.
    #[error(
        "key type {0:?} is not supported by this node, which makes RSA3072, RSA4096, ECDSAP256, ECDSAP384 and ED25519"
    )]
    Unsupported(String),
    #[error("while generating keypair: {0}")]
    Generation(#[from] rcgen::Error),
    #[error("while generating keypair: {0}")]
    Rsa(#[from] machinery_x509::KeyError),
}

/// A key and the request for a certificate of it.
pub(super) struct KeyAndProof {
    /// PEM of PKCS #8.
    pub(super) key: Vec<u8>,
    /// DER of PKCS #10 without a subject: the signer decides about all of it.
    pub(super) request: Vec<u8>,
}

/// The key is not shown.
impl std::fmt::Debug for KeyAndProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyAndProof").finish_non_exhaustive()
    }
}

/// Makes a key of upstream's type of this name. Blocks: seconds for RSA.
pub(super) fn generate(key_type: &str) -> Result<KeyAndProof, KeyError> {
    let pair = match key_type {
        "RSA3072" => rsa(3072)?,
        "RSA4096" => rsa(4096)?,
        "ECDSAP256" => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
        "ECDSAP384" => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?,
        "ED25519" => KeyPair::generate_for(&PKCS_ED25519)?,
        // `ring` does not have the curve P-521 (decision 0056).
        other => return Err(KeyError::Unsupported(other.to_owned())),
    };
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    let request = parameters.serialize_request(&pair)?.der().to_vec();
    let mut der = pair.serialize_der();
    if key_type == "ED25519" {
        der = [&ED25519_PREFIX[..], &der[ED25519_SEED]].concat();
    }
    let key = pem_text("PRIVATE KEY", &der).into_bytes();
    Ok(KeyAndProof { key, request })
}

fn rsa(bits: u64) -> Result<KeyPair, KeyError> {
    let key = PrivatePkcs8KeyDer::from(generate_rsa_key(bits)?);
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_RSA_SHA256)?)
}
