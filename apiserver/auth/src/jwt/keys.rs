//! The keys that sign and verify tokens, as PEM files and as JWKS.

use super::JwtError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pem::Pem;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey,
};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

pub(super) const ES256: &str = "ES256";
pub(super) const RS256: &str = "RS256";

/// A P-256 private key.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
    public: VerifyingKey,
    random: SystemRandom,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.public.id())
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    pub fn generate() -> Result<Self, JwtError> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| JwtError::Key("the key could not be generated"))?;
        Self::from_pkcs8(pkcs8.as_ref())
    }

    /// Reads `PRIVATE KEY` (PKCS #8) of a P-256 key.
    pub fn from_pem(text: &str) -> Result<Self, JwtError> {
        let pem = pem::parse(text).map_err(|_| JwtError::Key("not PEM"))?;
        if pem.tag() != "PRIVATE KEY" {
            return Err(JwtError::Key("expected a PKCS #8 key, PRIVATE KEY"));
        }
        Self::from_pkcs8(pem.contents())
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, JwtError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|_| JwtError::Key("not an ECDSA P-256 key"))?;
        let point = ring::signature::KeyPair::public_key(&pair).as_ref();
        let public = VerifyingKey::from_spki(&p256_spki(point))?;
        Ok(Self {
            pair,
            pkcs8: pkcs8.to_vec(),
            public,
            random,
        })
    }

    /// The same key for another owner.
    pub fn duplicate(&self) -> Result<Self, JwtError> {
        Self::from_pkcs8(&self.pkcs8)
    }

    pub fn to_pem(&self) -> String {
        pem::encode(&Pem::new("PRIVATE KEY", self.pkcs8.clone()))
    }

    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, JwtError> {
        let signature = self
            .pair
            .sign(&self.random, message)
            .map_err(|_| JwtError::Signing)?;
        Ok(signature.as_ref().to_vec())
    }
}

/// The subject public key info of an uncompressed P-256 point: a fixed prefix and the point.
fn p256_spki(point: &[u8]) -> Vec<u8> {
    const PREFIX: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    [PREFIX.as_slice(), point].concat()
}

/// A public key that tokens may be signed with; cheap to clone.
#[derive(Clone)]
pub struct VerifyingKey(Arc<Inner>);

struct Inner {
    spki: Vec<u8>,
    id: String,
    material: Material,
}

enum Material {
    /// The uncompressed point.
    P256(Vec<u8>),
    /// The `RSAPublicKey` in DER, and its numbers.
    Rsa {
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
    /// Reads `PUBLIC KEY`, or the public half of a `PRIVATE KEY` of ours.
    pub fn from_pem(text: &str) -> Result<Self, JwtError> {
        let pem = pem::parse(text).map_err(|_| JwtError::Key("not PEM"))?;
        match pem.tag() {
            "PUBLIC KEY" => Self::from_spki(pem.contents()),
            "PRIVATE KEY" => Ok(SigningKey::from_pem(text)?.public),
            _ => Err(JwtError::Key("expected PUBLIC KEY or PRIVATE KEY")),
        }
    }

    fn from_spki(spki: &[u8]) -> Result<Self, JwtError> {
        let (_, info) =
            SubjectPublicKeyInfo::from_der(spki).map_err(|_| JwtError::Key("not a public key"))?;
        let material = match info.parsed().map_err(|_| JwtError::Key("not a public key"))? {
            PublicKey::EC(point) if point.data().len() == 65 => Material::P256(point.data().to_vec()),
            PublicKey::RSA(key) => Material::Rsa {
                der: info.subject_public_key.data.to_vec(),
                modulus: without_leading_zeros(key.modulus),
                exponent: without_leading_zeros(key.exponent),
            },
            _ => return Err(JwtError::Key("neither ECDSA P-256 nor RSA")),
        };
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, spki));
        Ok(Self(Arc::new(Inner {
            spki: spki.to_vec(),
            id,
            material,
        })))
    }

    /// `kid`: the digest of the public key, as upstream makes it.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    pub fn to_pem(&self) -> String {
        pem::encode(&Pem::new("PUBLIC KEY", self.0.spki.clone()))
    }

    /// As a token's header names it.
    pub fn algorithm(&self) -> &'static str {
        match self.0.material {
            Material::P256(_) => ES256,
            Material::Rsa { .. } => RS256,
        }
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.0.material {
            Material::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
            Material::Rsa { der, .. } => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der)
                .verify(message, signature)
                .is_ok(),
        }
    }
}

fn without_leading_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// All keys of a file that has one or more, private or public.
///
/// # Errors
/// [`JwtError::Key`] where one of them cannot be read or there is none.
pub fn verifying_keys(text: &str) -> Result<Vec<VerifyingKey>, JwtError> {
    let blocks = pem::parse_many(text).map_err(|_| JwtError::Key("not PEM"))?;
    if blocks.is_empty() {
        return Err(JwtError::Key("the file has no keys"));
    }
    blocks
        .iter()
        .map(|block| VerifyingKey::from_pem(&pem::encode(block)))
        .collect()
}

/// One key as JWKS writes it; the order of fields is upstream's.
#[derive(Debug, Serialize)]
struct JsonWebKey<'a> {
    #[serde(rename = "use")]
    usage: &'static str,
    kty: &'static str,
    kid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'static str>,
    alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

/// The document at `/openid/v1/jwks`.
pub fn jwks(keys: &[VerifyingKey]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Set<'a> {
        keys: Vec<JsonWebKey<'a>>,
    }
    let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
    let keys = keys.iter().map(|key| {
        let blank = JsonWebKey {
            usage: "sig",
            kty: "EC",
            kid: key.id(),
            crv: None,
            alg: key.algorithm(),
            x: None,
            y: None,
            n: None,
            e: None,
        };
        match &key.0.material {
            Material::P256(point) => JsonWebKey {
                crv: Some("P-256"),
                x: encode(&point[1..33]),
                y: encode(&point[33..65]),
                ..blank
            },
            Material::Rsa {
                modulus, exponent, ..
            } => JsonWebKey {
                kty: "RSA",
                n: encode(modulus),
                e: encode(exponent),
                ..blank
            },
        }
    });
    serde_json::to_vec(&Set { keys: keys.collect() }).unwrap_or_default()
}
