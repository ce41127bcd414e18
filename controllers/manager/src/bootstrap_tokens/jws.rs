//! Detached signatures by a token's secret (RFC 7515, appendix F; upstream's `cluster-bootstrap/token/jws`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// The signature of a text by a token, the text itself left out.
pub(super) fn detached(content: &str, token_id: &str, token_secret: &str) -> String {
    let header = serde_json::json!({"alg": "HS256", "kid": token_id}).to_string();
    let header = URL_SAFE_NO_PAD.encode(header);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token_secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{header}..{signature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestComputeDetachedSignature`.
    #[test]
    fn signatures_are_upstreams() {
        const CONTENT: &str = "Hello from the other side. I must have called a thousand times.";
        const SECRET: &str = "my voice is my passcode";
        let check = |content: &str, secret: &str, expected: &str| {
            let expected = format!("eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..{expected}");
            assert_eq!(detached(content, "joshua", secret), expected);
        };
        check(CONTENT, SECRET, "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8");
        check("", SECRET, "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk");
        check(CONTENT, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8");
    }
}
