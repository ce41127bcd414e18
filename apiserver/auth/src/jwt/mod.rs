//! JSON web tokens as service accounts carry them, signed and verified with ES256, ES384 or RS256.
//!
//! Tokens of other issuers are read and verified apart from them ([`Compact`], [`WebKey`]).
//!
//! [`keys`] holds keys that sign, [`public`] those that verify, [`jwks`] shows the latter to relying parties, [`claims`]
//! says what a token states. A compact token is
//! `header.claims.signature`, each part base64url; anything longer than [`MAX_TOKEN_BYTES`] is not looked at.

pub mod claims;
mod der;
pub mod jwks;
pub mod keys;
pub mod public;
mod web_key;

pub use claims::{Claims, KubernetesClaims, LegacyClaims, ObjectClaim};
pub use keys::SigningKey;
pub use public::{Algorithm, VerifyingKey};
pub use web_key::{Compact, SignatureAlgorithm, WebKey, read_web_keys};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// No token of ours comes near this.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Failures to make or to read a token.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("not a JSON web token")]
    Malformed,
    #[error("unsupported algorithm {0:?}")]
    Algorithm(String),
    #[error("the signature was made by none of the known keys")]
    Signature,
    #[error("the claims cannot be read")]
    Claims(#[source] serde_json::Error),
    #[error("signing failed")]
    Signing,
    #[error("the key cannot be read: {0}")]
    Key(&'static str),
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
}

/// A compact token of these claims.
pub fn sign(key: &SigningKey, claims: &impl Serialize) -> Result<String, JwtError> {
    let header = Header {
        alg: key.algorithm().name().to_owned(),
        kid: Some(key.public().id().to_owned()),
    };
    let encode = |bytes: Vec<u8>| URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(serde_json::to_vec(&header).map_err(|_| JwtError::Signing)?);
    let claims = encode(serde_json::to_vec(claims).map_err(|_| JwtError::Signing)?);
    let mut token = format!("{header}.{claims}");
    let signature = key.sign(token.as_bytes())?;
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    Ok(token)
}

/// The issuer a token names, before anything is verified: it decides which authenticator looks at the token.
pub fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issued {
        iss: String,
    }
    let (_, claims, _) = parts(token, MAX_TOKEN_BYTES)?;
    serde_json::from_slice::<Issued>(&URL_SAFE_NO_PAD.decode(claims).ok()?)
        .ok()
        .map(|issued| issued.iss)
}

/// The time at which a token says that it ends, before anything is verified.
pub fn unverified_expiry(token: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Ending {
        exp: i64,
    }
    let (_, claims, _) = parts(token, MAX_TOKEN_BYTES)?;
    let ending: Ending = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    Some(ending.exp)
}

/// The claims of a token, once one of the keys has verified its signature. Times are not looked at here.
pub fn verify<C: DeserializeOwned>(keys: &[VerifyingKey], token: &str) -> Result<C, JwtError> {
    let (header, claims, signature) = parts(token, MAX_TOKEN_BYTES).ok_or(JwtError::Malformed)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed);
    let signed = &token[..header.len() + 1 + claims.len()];
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Malformed)?;
    let signature = decode(signature)?;
    let Some(algorithm) = Algorithm::named(&header.alg) else {
        return Err(JwtError::Algorithm(header.alg));
    };
    // A key id only narrows the search; tokens without one are tried with every key.
    let candidates = keys
        .iter()
        .filter(|key| key.algorithm() == algorithm && header.kid.as_deref().is_none_or(|id| id == key.id()));
    for key in candidates {
        if key.verifies(signed.as_bytes(), &signature) {
            return serde_json::from_slice(&decode(claims)?).map_err(JwtError::Claims);
        }
    }
    Err(JwtError::Signature)
}

fn parts(token: &str, limit: usize) -> Option<(&str, &str, &str)> {
    if token.len() > limit {
        return None;
    }
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Some((header, claims, signature)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
