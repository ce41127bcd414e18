//! Public keys as a JSON web key set.

use super::public::{Algorithm, Material, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

/// One key; the order of fields is upstream's.
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

#[derive(Serialize)]
struct Set<'a> {
    keys: Vec<JsonWebKey<'a>>,
}

/// The document at `/openid/v1/jwks`.
pub fn jwks(keys: &[VerifyingKey]) -> Vec<u8> {
    let keys = keys.iter().map(web_key).collect();
    serde_json::to_vec(&Set { keys }).unwrap_or_default()
}

fn web_key(key: &VerifyingKey) -> JsonWebKey<'_> {
    let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
    let blank = JsonWebKey {
        usage: "sig",
        kty: "EC",
        kid: key.id(),
        crv: None,
        alg: key.algorithm().name(),
        x: None,
        y: None,
        n: None,
        e: None,
    };
    match key.material() {
        Material::Ec(point) => {
            // After the first byte, which says that the point is not compressed.
            let (x, y) = point[1..].split_at(point.len() / 2);
            JsonWebKey {
                crv: Some(if key.algorithm() == Algorithm::Es384 {
                    "P-384"
                } else {
                    "P-256"
                }),
                x: encode(x),
                y: encode(y),
                ..blank
            }
        }
        Material::Rsa {
            modulus, exponent, ..
        } => JsonWebKey {
            kty: "RSA",
            n: encode(modulus),
            e: encode(exponent),
            ..blank
        },
    }
}
