//! Keys of other issuers: JSON web key sets as they are published, and the signatures that they verify.
//!
//! A key verifies with every algorithm that fits its kind, as upstream has it. Left out are symmetric keys, those for encryption, P-521
//! (`ES512`), which `ring` lacks, and RSA below 2048 bits.

use super::JwtError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use std::fmt;

/// Keys of a set; a token that names none is tried with each.
const MAX_KEYS: usize = 100;

/// Algorithms of signatures that upstream allows (RFC 7518).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
}

impl SignatureAlgorithm {
    /// All that upstream allows.
    pub const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// The name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::Es512 => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
}

impl Curve {
    fn named(name: &str) -> Option<Self> {
        match name {
            "P-256" => Some(Self::P256),
            "P-384" => Some(Self::P384),
            _ => None,
        }
    }

    /// Bytes of a coordinate.
    fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED,
            Self::P384 => &ECDSA_P384_SHA384_FIXED,
        }
    }

    fn algorithm(self) -> SignatureAlgorithm {
        match self {
            Self::P256 => SignatureAlgorithm::Es256,
            Self::P384 => SignatureAlgorithm::Es384,
        }
    }
}

enum Material {
    /// The uncompressed point.
    Ec(Curve, Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

/// A public key of another issuer.
pub struct WebKey {
    id: String,
    material: Material,
}

impl fmt::Debug for WebKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebKey").field(&self.id).finish()
    }
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
}

impl Written {
    fn material(&self) -> Option<Material> {
        let number = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().filter(|own| !own.is_empty());
        match self.kty.as_str() {
            "EC" => {
                let curve = Curve::named(&self.crv)?;
                let mut point = vec![4];
                for coordinate in [&self.x, &self.y] {
                    let own = number(coordinate)?;
                    let missing = curve.size().checked_sub(own.len())?;
                    point.extend(std::iter::repeat_n(0, missing));
                    point.extend(own);
                }
                Some(Material::Ec(curve, point))
            }
            "RSA" => {
                let bare = |text: &str| {
                    let own = number(text)?;
                    Some(own.into_iter().skip_while(|byte| *byte == 0).collect())
                };
                Some(Material::Rsa {
                    modulus: bare(&self.n)?,
                    exponent: bare(&self.e)?,
                })
            }
            _ => None,
        }
    }
}

impl WebKey {
    /// Reports whether a token's header may mean this key; one that names none may mean any.
    pub fn is_meant_by(&self, id: &str) -> bool {
        id.is_empty() || id == self.id
    }

    pub fn verifies(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Ec(curve, point) if curve.algorithm() == algorithm => {
                let key = UnparsedPublicKey::new(curve.verification(), point);
                key.verify(message, signature).is_ok()
            }
            Material::Ec(..) => false,
            Material::Rsa { modulus, exponent } => algorithm.rsa().is_some_and(|parameters| {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, message, signature).is_ok()
            }),
        }
    }
}

/// The keys of a set that verify signatures; those of other kinds are left out.
///
/// # Errors
/// The text is no set, or one of too many keys.
pub fn read_web_keys(text: &[u8]) -> Result<Vec<WebKey>, JwtError> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|_| JwtError::Key("not a JSON web key set"))?;
    if set.keys.len() > MAX_KEYS {
        return Err(JwtError::Key("the set has more than 100 keys"));
    }
    let keys = set.keys.into_iter().filter_map(|own| {
        let own: Written = serde_json::from_value(own).ok()?;
        let material = own.material().filter(|_| own.usage != "enc")?;
        Some(WebKey {
            id: own.kid,
            material,
        })
    });
    Ok(keys.collect())
}

/// A token of another issuer, taken apart; nothing of it is verified.
#[derive(Debug)]
pub struct Compact<'a> {
    pub algorithm: String,
    /// Empty where the header names no key.
    pub key_id: String,
    /// The part that was signed.
    pub signed: &'a str,
    pub claims: Vec<u8>,
    pub signature: Vec<u8>,
}

impl<'a> Compact<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// It is none, is longer than `limit`, or demands what this server does not know (`crit`).
    pub fn parse(token: &'a str, limit: usize) -> Result<Self, JwtError> {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
            #[serde(default)]
            kid: String,
            #[serde(default)]
            crit: Option<serde_json::Value>,
        }
        let (header, claims, signature) = super::parts(token, limit).ok_or(JwtError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed);
        let signed = &token[..header.len() + 1 + claims.len()];
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Malformed)?;
        if header.crit.is_some() {
            return Err(JwtError::Malformed);
        }
        Ok(Self {
            algorithm: header.alg,
            key_id: header.kid,
            signed,
            claims: decode(claims)?,
            signature: decode(signature)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt::{SigningKey, jwks, sign};

    #[test]
    fn web_keys_are_read_and_verify() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let token = sign(&key, &serde_json::json!({"sub": "anna"})).unwrap();
        let keys = read_web_keys(&jwks::jwks(&[other.public().clone(), key.public().clone()])).unwrap();
        let compact = Compact::parse(&token, 4_096).unwrap();
        assert_eq!(compact.claims, br#"{"sub":"anna"}"#);
        let algorithm = SignatureAlgorithm::named(&compact.algorithm).unwrap();
        let verified: Vec<bool> = keys
            .iter()
            .map(|own| own.verifies(algorithm, compact.signed.as_bytes(), &compact.signature))
            .collect();
        assert_eq!(verified, [false, true]);
        let meant: Vec<bool> = keys.iter().map(|own| own.is_meant_by(&compact.key_id)).collect();
        assert_eq!(meant, [false, true]);
        assert!(keys.iter().all(|own| own.is_meant_by("")));
        let wrong = SignatureAlgorithm::Rs256;
        assert!(!keys[1].verifies(wrong, compact.signed.as_bytes(), &compact.signature));
    }

    /// As RFC 7518 has them, each with one key.
    #[test]
    fn web_keys_verify_every_algorithm_of_rsa() {
        use ring::signature::{
            RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
            RSA_PSS_SHA512, RsaKeyPair,
        };
        let der = machinery_x509::generate_rsa_key(2_048).unwrap();
        let pair = RsaKeyPair::from_pkcs8(&der).unwrap();
        let public = pair.public();
        let numbers = RsaPublicKeyComponents::<Vec<u8>>::from(public);
        let number = |own: &[u8]| URL_SAFE_NO_PAD.encode(own);
        let (modulus, exponent) = (numbers.n, numbers.e);
        let set = format!(
            r#"{{"keys":[{{"kty":"RSA","n":"{}","e":"{}"}}]}}"#,
            number(&modulus),
            number(&exponent)
        );
        let key = read_web_keys(set.as_bytes()).unwrap().remove(0);
        let random = ring::rand::SystemRandom::new();
        let encodings: [(&'static dyn ring::signature::RsaEncoding, _); 6] = [
            (&RSA_PKCS1_SHA256, SignatureAlgorithm::Rs256),
            (&RSA_PKCS1_SHA384, SignatureAlgorithm::Rs384),
            (&RSA_PKCS1_SHA512, SignatureAlgorithm::Rs512),
            (&RSA_PSS_SHA256, SignatureAlgorithm::Ps256),
            (&RSA_PSS_SHA384, SignatureAlgorithm::Ps384),
            (&RSA_PSS_SHA512, SignatureAlgorithm::Ps512),
        ];
        for (encoding, algorithm) in encodings {
            let mut signature = vec![0; public.modulus_len()];
            pair.sign(encoding, &random, b"message", &mut signature).unwrap();
            for other in SignatureAlgorithm::ALL {
                let verified = key.verifies(other, b"message", &signature);
                assert_eq!(verified, other == algorithm, "{algorithm:?} as {other:?}");
            }
            assert!(!key.verifies(algorithm, b"another", &signature));
        }
    }

    #[test]
    fn web_keys_that_do_not_verify_are_left_out() {
        let read = |keys: &str| {
            read_web_keys(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())
                .unwrap()
                .len()
        };
        for key in [
            r#"{"kty":"oct","k":"c2VjcmV0"}"#,
            r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
            r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#,
            r#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#,
            r#"{"kty":"RSA","n":"AQAB"}"#,
            r#"{"kty":7}"#,
            "null",
        ] {
            assert_eq!(read(key), 0, "{key}");
        }
        assert_eq!(read(r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#), 1);
        let many = vec!["{}"; MAX_KEYS + 1].join(",");
        assert!(read_web_keys(format!(r#"{{"keys":[{many}]}}"#).as_bytes()).is_err());
        assert!(read_web_keys(b"<html>").is_err());
    }
}
