//! JSON web tokens as service accounts carry them: signed with ES256 by us, verified with ES256 or RS256.
//!
//! [`keys`] holds the keys and renders them as JWKS, [`claims`] says what a token states. A compact token is
//! `header.claims.signature`, each part base64url; anything longer than [`MAX_TOKEN_BYTES`] is not looked at.

pub mod claims;
pub mod keys;

pub use claims::{Claims, KubernetesClaims, ObjectClaim};
pub use keys::{SigningKey, VerifyingKey};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// No token of ours comes near this.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Why a token could not be made or read.
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
pub fn sign(key: &SigningKey, claims: &Claims) -> Result<String, JwtError> {
    let header = Header {
        alg: keys::ES256.to_owned(),
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
    let (_, claims, _) = parts(token)?;
    serde_json::from_slice::<Issued>(&URL_SAFE_NO_PAD.decode(claims).ok()?)
        .ok()
        .map(|issued| issued.iss)
}

/// The claims of a token, once one of the keys has verified its signature. Times are not looked at here.
pub fn verify(keys: &[VerifyingKey], token: &str) -> Result<Claims, JwtError> {
    let (header, claims, signature) = parts(token).ok_or(JwtError::Malformed)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed);
    let signed = &token[..header.len() + 1 + claims.len()];
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Malformed)?;
    let signature = decode(signature)?;
    if ![keys::ES256, keys::RS256].contains(&header.alg.as_str()) {
        return Err(JwtError::Algorithm(header.alg));
    }
    // A key id only narrows the search; tokens without one are tried with every key.
    let candidates = keys
        .iter()
        .filter(|key| key.algorithm() == header.alg && header.kid.as_deref().is_none_or(|id| id == key.id()));
    for key in candidates {
        if key.verifies(signed.as_bytes(), &signature) {
            return serde_json::from_slice(&decode(claims)?).map_err(JwtError::Claims);
        }
    }
    Err(JwtError::Signature)
}

fn parts(token: &str) -> Option<(&str, &str, &str)> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => Some((header, claims, signature)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            iss: "us".into(),
            sub: "system:serviceaccount:a:b".into(),
            exp: 10,
            ..Claims::default()
        }
    }

    #[test]
    fn what_is_signed_verifies_and_nothing_else() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let token = sign(&key, &claims()).unwrap();
        assert_eq!(unverified_issuer(&token).as_deref(), Some("us"));
        assert_eq!(
            verify(&[other.public().clone(), key.public().clone()], &token).unwrap(),
            claims()
        );
        assert!(matches!(
            verify(&[other.public().clone()], &token),
            Err(JwtError::Signature)
        ));
        let forged = sign(&other, &claims()).unwrap();
        assert!(matches!(
            verify(&[key.public().clone()], &forged),
            Err(JwtError::Signature)
        ));
    }

    #[test]
    fn no_change_of_a_token_verifies() {
        let key = SigningKey::generate().unwrap();
        let keys = [key.public().clone()];
        let token = sign(&key, &claims()).unwrap();
        machinery_fuzz::fuzz([&token], |input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            drop(unverified_issuer(text));
            assert!(verify(&keys, text).is_err() || text == token);
        });
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let key = SigningKey::generate().unwrap();
        let good = sign(&key, &claims()).unwrap();
        let unsigned = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#),
            good.split('.').nth(1).unwrap()
        );
        let keys = [key.public().clone()];
        assert!(matches!(verify(&keys, &unsigned), Err(JwtError::Algorithm(_))));
        for bad in [
            "",
            "a",
            "a.b",
            "a.b.c",
            "a.b.c.d",
            &good[1..],
            &"a".repeat(MAX_TOKEN_BYTES + 1),
        ] {
            assert!(verify(&keys, bad).is_err(), "{bad}");
        }
        // A changed claim breaks the signature.
        let mut parts: Vec<String> = good.split('.').map(str::to_owned).collect();
        parts[1] = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&Claims { exp: 11, ..claims() }).unwrap());
        assert!(matches!(
            verify(&keys, &parts.join(".")),
            Err(JwtError::Signature)
        ));
    }

    #[test]
    fn keys_survive_their_files() {
        let key = SigningKey::generate().unwrap();
        let again = SigningKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(again.public().id(), key.public().id());
        let public = VerifyingKey::from_pem(&key.public().to_pem()).unwrap();
        verify(&[public], &sign(&again, &claims()).unwrap()).unwrap();
    }
}
