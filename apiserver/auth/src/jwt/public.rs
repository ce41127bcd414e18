//! Public keys that tokens may be signed with.

use super::JwtError;
use super::der::{self, Curve};
use super::keys::SigningKey;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pem::Pem;
use ring::digest;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use std::fmt;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::{PublicKey, RSAPublicKey};
use x509_parser::x509::SubjectPublicKeyInfo;

/// Shorter RSA keys are no longer safe; `ring` does not verify with them.
const MIN_RSA_BITS: usize = 2_048;
const MAX_RSA_BITS: usize = 8_192;
const CURVES: JwtError = JwtError::Key("an ECDSA key must be on P-256 or P-384");

/// Signature algorithms of JSON web tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Es256,
    Es384,
    Rs256,
}

impl Algorithm {
    /// The name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Es256, Self::Es384, Self::Rs256]
            .into_iter()
            .find(|own| own.name() == name)
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

/// A public key that tokens may be signed with; cheap to clone.
#[derive(Clone)]
pub struct VerifyingKey(Arc<Inner>);

struct Inner {
    spki: Vec<u8>,
    id: String,
    algorithm: Algorithm,
    material: Material,
}

/// Numbers of a key, as JWKS writes them.
pub(super) enum Material {
    /// The uncompressed point.
    Ec(Vec<u8>),
    Rsa {
        /// The `RSAPublicKey` in DER.
        der: Vec<u8>,
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VerifyingKey").field(&self.0.id).finish()
    }
}

impl VerifyingKey {
    /// Reads the first key of a PEM file: a public key, a certificate's, or the public half of a private key.
    pub fn from_pem(text: &str) -> Result<Self, JwtError> {
        let mut keys = verifying_keys(text)?;
        Ok(keys.swap_remove(0))
    }

    pub(super) fn ec(point: &[u8]) -> Result<Self, JwtError> {
        let curve = Curve::of_point(point).filter(|_| point.first() == Some(&4));
        let curve = curve.ok_or(CURVES)?;
        let algorithm = match curve {
            Curve::P256 => Algorithm::Es256,
            Curve::P384 => Algorithm::Es384,
        };
        let material = Material::Ec(point.to_vec());
        Ok(Self::new(der::ec_public_key(curve, point), algorithm, material))
    }

    /// `der` is an `RSAPublicKey`.
    pub(super) fn rsa(der: &[u8]) -> Result<Self, JwtError> {
        let unreadable = |_| JwtError::Key("not an RSA key");
        let (_, key) = RSAPublicKey::from_der(der).map_err(unreadable)?;
        let modulus = without_leading_zeros(key.modulus);
        if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&(modulus.len() * 8)) {
            return Err(JwtError::Key("an RSA key must have 2048 to 8192 bits"));
        }
        let material = Material::Rsa {
            der: der.to_vec(),
            modulus,
            exponent: without_leading_zeros(key.exponent),
        };
        Ok(Self::new(der::rsa_public_key(der), Algorithm::Rs256, material))
    }

    fn new(spki: Vec<u8>, algorithm: Algorithm, material: Material) -> Self {
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &spki));
        Self(Arc::new(Inner {
            spki,
            id,
            algorithm,
            material,
        }))
    }

    fn of_info(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, JwtError> {
        match info.parsed().map_err(|_| JwtError::Key("not a public key"))? {
            PublicKey::EC(point) => {
                // Points of another curve may be as long.
                let key = Self::ec(point.data())?;
                if info.raw != key.0.spki {
                    return Err(CURVES);
                }
                Ok(key)
            }
            PublicKey::RSA(_) => Self::rsa(&info.subject_public_key.data),
            _ => Err(JwtError::Key("neither ECDSA nor RSA")),
        }
    }

    /// `kid`: the digest of the public key, as upstream makes it.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    pub fn to_pem(&self) -> String {
        pem::encode(&Pem::new("PUBLIC KEY", self.0.spki.clone()))
    }

    /// The algorithm of all signatures of this key.
    pub fn algorithm(&self) -> Algorithm {
        self.0.algorithm
    }

    pub(super) fn material(&self) -> &Material {
        &self.0.material
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = match &self.0.material {
            Material::Ec(point) => point,
            Material::Rsa { der, .. } => der,
        };
        UnparsedPublicKey::new(self.0.algorithm.verification(), key)
            .verify(message, signature)
            .is_ok()
    }
}

fn without_leading_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// All keys of a PEM file, private or public or of certificates. Blocks of other kinds are passed over, as upstream does.
///
/// # Errors
/// [`JwtError::Key`] where one of them cannot be used or there is none.
pub fn verifying_keys(text: &str) -> Result<Vec<VerifyingKey>, JwtError> {
    let blocks = pem::parse_many(text).map_err(|_| JwtError::Key("not PEM"))?;
    let keys: Vec<VerifyingKey> = blocks.iter().filter_map(of_block).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(JwtError::Key("the file has no keys"));
    }
    Ok(keys)
}

fn of_block(block: &Pem) -> Option<Result<VerifyingKey, JwtError>> {
    let unreadable = || JwtError::Key("not a public key");
    Some(match block.tag() {
        "PUBLIC KEY" => SubjectPublicKeyInfo::from_der(block.contents())
            .map_err(|_| unreadable())
            .and_then(|(_, info)| VerifyingKey::of_info(&info)),
        "RSA PUBLIC KEY" => VerifyingKey::rsa(block.contents()),
        "CERTIFICATE" => X509Certificate::from_der(block.contents())
            .map_err(|_| unreadable())
            .and_then(|(_, own)| VerifyingKey::of_info(own.public_key())),
        _ => return Some(SigningKey::of_block(block)?.map(|key| key.public().clone())),
    })
}
