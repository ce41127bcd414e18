//! Private keys that sign tokens, as PEM files.

use super::JwtError;
use super::der::{self, Curve};
use super::public::{Algorithm, VerifyingKey};
use pem::Pem;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use std::fmt;
use std::sync::Arc;

/// A private key: ECDSA on P-256 or P-384, or RSA of 2048 to 4096 bits. Cheap to clone.
#[derive(Clone)]
pub struct SigningKey(Arc<Inner>);

struct Inner {
    pair: Pair,
    pem: Pem,
    public: VerifyingKey,
    random: SystemRandom,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.public().id())
            .finish_non_exhaustive()
    }
}

impl Curve {
    fn signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
        }
    }
}

impl Pair {
    fn ec(read: impl Fn(Curve) -> Option<EcdsaKeyPair>) -> Result<Self, JwtError> {
        let pair = Curve::ALL.into_iter().find_map(read);
        pair.map(Self::Ec).ok_or(JwtError::Key(
            "neither ECDSA P-256 or P-384 nor RSA of 2048 to 4096 bits",
        ))
    }

    /// `None` where the block is no private key.
    fn of_block(block: &Pem, random: &SystemRandom) -> Option<Result<Self, JwtError>> {
        let contents = block.contents();
        let read = |curve: Curve, pkcs8: &[u8]| EcdsaKeyPair::from_pkcs8(curve.signing(), pkcs8, random).ok();
        Some(match block.tag() {
            "PRIVATE KEY" => match RsaKeyPair::from_pkcs8(contents) {
                Ok(pair) => Ok(Self::Rsa(pair)),
                Err(_) => Self::ec(|curve| read(curve, contents)),
            },
            "EC PRIVATE KEY" => Self::ec(|curve| read(curve, &der::ec_private_key(curve, contents))),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(contents)
                .map(Self::Rsa)
                .map_err(|_| JwtError::Key("not an RSA key of 2048 to 4096 bits")),
            _ => return None,
        })
    }

    fn public(&self) -> Result<VerifyingKey, JwtError> {
        match self {
            Self::Ec(pair) => VerifyingKey::ec(pair.public_key().as_ref()),
            Self::Rsa(pair) => VerifyingKey::rsa(pair.public().as_ref()),
        }
    }
}

impl SigningKey {
    /// A new key on P-256.
    pub fn generate() -> Result<Self, JwtError> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(Curve::P256.signing(), &random)
            .map_err(|_| JwtError::Key("the key could not be generated"))?;
        let block = Pem::new("PRIVATE KEY", pkcs8.as_ref());
        Self::of_block(&block).unwrap_or(Err(JwtError::Signing))
    }

    /// Reads the first private key of a PEM file: `PRIVATE KEY` (PKCS #8), `EC PRIVATE KEY` or `RSA PRIVATE KEY`.
    pub fn from_pem(text: &str) -> Result<Self, JwtError> {
        let blocks = pem::parse_many(text).map_err(|_| JwtError::Key("not PEM"))?;
        let found = blocks.iter().find_map(Self::of_block);
        found.unwrap_or(Err(JwtError::Key("the file has no private key")))
    }

    pub(super) fn of_block(block: &Pem) -> Option<Result<Self, JwtError>> {
        let random = SystemRandom::new();
        let pair = Pair::of_block(block, &random)?;
        Some(pair.and_then(|pair| {
            Ok(Self(Arc::new(Inner {
                public: pair.public()?,
                pair,
                pem: block.clone(),
                random,
            })))
        }))
    }

    /// The key as it was read or made.
    pub fn to_pem(&self) -> String {
        pem::encode(&self.0.pem)
    }

    pub fn public(&self) -> &VerifyingKey {
        &self.0.public
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.0.public.algorithm()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, JwtError> {
        match &self.0.pair {
            Pair::Ec(pair) => {
                let signature = pair.sign(&self.0.random, message);
                Ok(signature.map_err(|_| JwtError::Signing)?.as_ref().to_vec())
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &self.0.random, message, &mut signature)
                    .map_err(|_| JwtError::Signing)?;
                Ok(signature)
            }
        }
    }
}
