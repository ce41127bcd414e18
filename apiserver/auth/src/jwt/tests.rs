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
fn jwt_signed_token_verifies_and_no_other() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let token = sign(&key, &claims()).unwrap();
    assert_eq!(unverified_issuer(&token).as_deref(), Some("us"));
    assert_eq!(
        verify::<Claims>(&[other.public().clone(), key.public().clone()], &token).unwrap(),
        claims()
    );
    assert!(matches!(
        verify::<Claims>(&[other.public().clone()], &token),
        Err(JwtError::Signature)
    ));
    let forged = sign(&other, &claims()).unwrap();
    assert!(matches!(
        verify::<Claims>(&[key.public().clone()], &forged),
        Err(JwtError::Signature)
    ));
}

/// A part is decoded, and its claims are read from that.
const HELD_BY_BYTE: usize = 4;

#[test]
fn jwt_altered_token_does_not_verify() {
    let key = SigningKey::generate().unwrap();
    let keys = [key.public().clone()];
    let token = sign(&key, &claims()).unwrap();
    machinery_fuzz::fuzz([&token], |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        let verified = machinery_fuzz::in_proportion(input, HELD_BY_BYTE, || {
            drop(unverified_issuer(text));
            verify::<Claims>(&keys, text)
        });
        assert!(verified.is_err() || text == token);
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
    assert!(matches!(
        verify::<Claims>(&keys, &unsigned),
        Err(JwtError::Algorithm(_))
    ));
    for bad in [
        "",
        "a",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        &good[1..],
        &"a".repeat(MAX_TOKEN_BYTES + 1),
    ] {
        assert!(verify::<Claims>(&keys, bad).is_err(), "{bad}");
    }
    // A changed claim breaks the signature.
    let mut parts: Vec<String> = good.split('.').map(str::to_owned).collect();
    parts[1] = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&Claims { exp: 11, ..claims() }).unwrap());
    assert!(matches!(
        verify::<Claims>(&keys, &parts.join(".")),
        Err(JwtError::Signature)
    ));
}

#[test]
fn keys_survive_their_files() {
    let key = SigningKey::generate().unwrap();
    let again = SigningKey::from_pem(&key.to_pem()).unwrap();
    assert_eq!(again.public().id(), key.public().id());
    let public = VerifyingKey::from_pem(&key.public().to_pem()).unwrap();
    verify::<Claims>(&[public], &sign(&again, &claims()).unwrap()).unwrap();
}

/// Keys of upstream's `x509` in each form that it writes, with the token, key set and discovery document that upstream
/// makes of them. They guard nothing.
#[derive(Deserialize)]
struct Upstream {
    name: String,
    private: Vec<Block>,
    public: Vec<Block>,
    token: String,
    jwks: serde_json::Value,
    configuration: serde_json::Value,
}

#[derive(Deserialize)]
struct Block {
    tag: String,
    der: String,
}

impl Block {
    fn pem(&self) -> String {
        let der = base64::engine::general_purpose::STANDARD
            .decode(&self.der)
            .unwrap();
        pem::encode(&pem::Pem::new(&*self.tag, der))
    }
}

fn upstream_keys() -> Vec<Upstream> {
    serde_json::from_str(include_str!("../../testdata/service_account_keys.json")).unwrap()
}

#[test]
fn signing_keys_of_every_form_sign_what_their_public_forms_verify() {
    for own in upstream_keys() {
        let public: Vec<VerifyingKey> = own
            .public
            .iter()
            .map(|block| VerifyingKey::from_pem(&block.pem()).unwrap())
            .collect();
        for block in &own.private {
            let what = format!("{} {}", own.name, block.tag);
            // As openssl writes a key on a curve.
            let text = format!("{}{}", PARAMETERS, block.pem());
            let key = SigningKey::from_pem(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(
                VerifyingKey::from_pem(&text).unwrap().id(),
                key.public().id(),
                "{what}"
            );
            let token = sign(&key, &claims()).unwrap();
            for public in &public {
                assert_eq!(public.id(), key.public().id(), "{what}");
                assert_eq!(
                    verify::<Claims>(std::slice::from_ref(public), &token).unwrap(),
                    claims(),
                    "{what}"
                );
            }
        }
    }
}

const PARAMETERS: &str = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";

#[test]
fn key_sets_and_tokens_are_upstreams() {
    let all = upstream_keys();
    let keys: Vec<VerifyingKey> = all
        .iter()
        .map(|own| VerifyingKey::from_pem(&own.public[0].pem()).unwrap())
        .collect();
    for (own, key) in all.iter().zip(&keys) {
        let shown: serde_json::Value =
            serde_json::from_slice(&jwks::jwks(std::slice::from_ref(key))).unwrap();
        assert_eq!(shown, own.jwks, "{}", own.name);
        let named = &own.configuration["id_token_signing_alg_values_supported"][0];
        assert_eq!(named, key.algorithm().name(), "{}", own.name);
        let stated: LegacyClaims = verify(&keys, &own.token).unwrap();
        assert_eq!(
            stated,
            LegacyClaims::new("a", "sa", "uid-sa", "token"),
            "{}",
            own.name
        );
        let others: Vec<VerifyingKey> = keys
            .iter()
            .filter(|other| other.id() != key.id())
            .cloned()
            .collect();
        assert!(matches!(
            verify::<LegacyClaims>(&others, &own.token),
            Err(JwtError::Signature)
        ));
    }
}

#[test]
fn key_of_another_curve_or_too_short_is_refused() {
    // secp256k1, whose points are as long as those of P-256, and RSA of 1024 bits.
    for text in [SECP256K1, RSA_1024] {
        assert!(
            matches!(VerifyingKey::from_pem(text), Err(JwtError::Key(_))),
            "{text}"
        );
    }
}

const SECP256K1: &str = "-----BEGIN PUBLIC KEY-----
MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEvLX5RTwZo4Ogl7QwfuPxX9yiSD7SgHgw
7RGQuVrKSVm1qYUtT7IjRUlRfG71vQ/ZAGAV7N/ojmzEiRHGgk9voQ==
-----END PUBLIC KEY-----";
const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC+4CSmt9N1AdDnJ8vptrgzwe7r
h/lqTlbxqZ3aDFpEOQiCpu1o8eueixa2ZGc/bZm13O31NzDcz8r7GqrfGQkQeVSS
61sAO6+8bjhvakKrHqUS/HNmVHmSD0Vd1Z1x9s0HGBQJlvMm37PmWPx6lV6FhenR
hwiVAaPXeWmq5J/SlQIDAQAB
-----END PUBLIC KEY-----";
