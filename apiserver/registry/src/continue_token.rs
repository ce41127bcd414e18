//! The token that lets a list go on where its last page ended (upstream's form, so that clients may keep theirs).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The words of a token that is too old; the answer carries a fresh token.
pub(crate) const INCONSISTENT_CONTINUE_MESSAGE: &str = "The provided continue parameter is too old \
to display a consistent list result. You can start a new list without the continue parameter, or use the continue \
token in this response to retrieve the remainder of the results. Continuing with the provided token results in an \
inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned \
and now may show up in the list.";

/// Longer tokens are nobody's.
const MAX_TOKEN_BYTES: usize = 4096;

/// Where a list stands: the revision of its first page and the first key still to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContinueToken {
    #[serde(rename = "v")]
    api_version: String,
    /// -1 asks for the newest state instead (an inconsistent continuation).
    #[serde(rename = "rv", default)]
    pub(crate) resource_version: i64,
    /// Relative to the collection's prefix.
    #[serde(rename = "start", default)]
    pub(crate) start_key: String,
}

impl ContinueToken {
    pub(crate) fn new(resource_version: i64, start_key: String) -> Self {
        Self {
            api_version: "meta.k8s.io/v1".into(),
            resource_version,
            start_key,
        }
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a token has only strings and numbers"))
    }

    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err("continue key is not valid: too long".into());
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|e| format!("invalid continue token: continue key is not valid: {e}"))?;
        let token: Self = serde_json::from_slice(&bytes)
            .map_err(|e| format!("invalid continue token: continue key is not valid: {e}"))?;
        if token.api_version != "meta.k8s.io/v1" {
            return Err(format!(
                "continue key is not valid: server does not recognize this encoded version \"{}\"",
                token.api_version
            ));
        }
        if token.resource_version == 0 {
            return Err(
                "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
                    .into(),
            );
        }
        if token.start_key.is_empty() {
            return Err("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)".into());
        }
        let traverses = token.start_key.split('/').any(|part| part == "." || part == "..");
        if traverses {
            return Err(format!("continue key is not valid: {}", token.start_key));
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_fuzz::fuzz;

    #[test]
    fn any_token_is_answered() {
        let good = ContinueToken::new(12, "default/a\0".into()).encode();
        fuzz(
            [good.as_str(), "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ=="],
            |input| {
                if let Ok(token) = ContinueToken::decode(&String::from_utf8_lossy(input)) {
                    assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
                }
            },
        );
        let json = br#"{"v":"meta.k8s.io/v1","rv":12,"start":"default/a\u0000"}"#;
        fuzz([json], |input| {
            drop(ContinueToken::decode(&URL_SAFE_NO_PAD.encode(input)))
        });
    }

    #[test]
    fn tokens_come_back() {
        let token = ContinueToken::new(12, "default/a\0".into());
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        for bad in [
            "",
            "!!",
            "e30",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
        ] {
            assert!(ContinueToken::decode(bad).is_err(), "{bad}");
        }
    }
}
