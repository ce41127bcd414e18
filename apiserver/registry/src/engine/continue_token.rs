//! The token that lets a list go on where its last page ended (upstream's form, so that clients may keep theirs).

use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, NO_PAD};
use base64::{DecodeError, Engine};
use machinery_schema::{Ref, Strictness, Tree, decode_json};
use serde::Serialize;

/// Go's `RawURLEncoding`, which does not look at bits beyond the last byte.
const ENCODING: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, TAIL);
const TAIL: GeneralPurposeConfig = NO_PAD.with_decode_allow_trailing_bits(true);

/// The words of a token that is too old; the answer carries a fresh token.
pub(crate) const INCONSISTENT_CONTINUE_MESSAGE: &str = "The provided continue parameter is too old \
to display a consistent list result. You can start a new list without the continue parameter, or use the continue \
token in this response to retrieve the remainder of the results. Continuing with the provided token results in an \
inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned \
and now may show up in the list.";

/// Longest token of this server.
const MAX_TOKEN_BYTES: usize = 4096;

/// The position of a paged list: the revision of its first page and the next key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ContinueToken {
    #[serde(rename = "v")]
    api_version: String,
    /// -1 requests the newest state instead (an inconsistent continuation).
    #[serde(rename = "rv")]
    pub(crate) resource_version: i64,
    /// Relative to the collection's prefix.
    #[serde(rename = "start")]
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
        ENCODING.encode(serde_json::to_vec(self).expect("a token has only strings and numbers"))
    }

    /// Reads a token, or says what is wrong with it in upstream's words.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        Self::read(text)
            .map_err(|problem| format!("invalid continue token: continue key is not valid: {problem}"))
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err("too long".into());
        }
        let bytes = ENCODING.decode(text).map_err(|error| corrupt(text, &error))?;
        let token = Self::from_json(&bytes)?;
        if token.api_version != "meta.k8s.io/v1" {
            return Err(format!(
                "server does not recognize this encoded version {}",
                token.api_version
            ));
        }
        if token.resource_version == 0 {
            return Err("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into());
        }
        if token.start_key.is_empty() {
            return Err("encoded start key empty (version meta.k8s.io/v1)".into());
        }
        if !is_clean(&token.start_key) {
            return Err(token.start_key);
        }
        Ok(token)
    }

    fn from_json(bytes: &[u8]) -> Result<Self, String> {
        let untyped = Tree::untyped();
        let decoded = decode_json(untyped.schema(), untyped.ty(), bytes, Strictness::Ignore);
        let tree = decoded.map_err(|error| error.to_string())?.tree;
        if let Some(other) = go_type(tree.root()).filter(|own| *own != "object") {
            return Err(format!(
                "json: cannot unmarshal {other} into Go value of type storage.continueToken"
            ));
        }
        let wrong = |name: &str, wanted: &str| {
            let found = tree.get(name).and_then(go_type).unwrap_or_default();
            format!(
                "json: cannot unmarshal {found} into Go struct field continueToken.{name} of type {wanted}"
            )
        };
        let member = |name| tree.get(name).filter(|own| !own.is_null());
        let text = |name| match member(name) {
            None => Ok(String::new()),
            Some(own) => own
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| wrong(name, "string")),
        };
        Ok(Self {
            api_version: text("v")?,
            resource_version: match member("rv") {
                None => 0,
                Some(own) => own.as_i64().ok_or_else(|| wrong("rv", "int64"))?,
            },
            start_key: text("start")?,
        })
    }
}

/// Go's name for the type of a JSON value; none for null.
fn go_type(value: Ref<'_>) -> Option<&'static str> {
    Some(match value.to_json().as_bytes().first()? {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        b'n' => return None,
        _ => "number",
    })
}

/// Go's error for text that is not base64, with Go's offset: a single excess character is wrong at itself.
fn corrupt(text: &str, error: &DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len().saturating_sub(1),
    };
    format!("illegal base64 data at input byte {at}")
}

/// The key names something below its collection and nothing else, as Go's `path.Clean` would leave it.
fn is_clean(key: &str) -> bool {
    let key = key.strip_prefix('/').unwrap_or(key);
    !key.split('/').any(|part| matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_fuzz::{fuzz, in_proportion};

    #[test]
    fn continue_token_fuzz_never_panics() {
        let good = ContinueToken::new(12, "default/a\0".into()).encode();
        fuzz(
            [good.as_str(), "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ=="],
            |input| {
                let text = String::from_utf8_lossy(input);
                if let Ok(token) = in_proportion(input, 8, || ContinueToken::decode(&text)) {
                    assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
                }
            },
        );
        let json = br#"{"v":"meta.k8s.io/v1","rv":12,"start":"default/a\u0000"}"#;
        fuzz([json], |input| {
            let text = ENCODING.encode(input);
            drop(in_proportion(input, 8, || ContinueToken::decode(&text)))
        });
    }

    #[test]
    fn continue_token_round_trips() {
        let token = ContinueToken::new(12, "default/a\0".into());
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn continue_token_errors_match_upstream() {
        for (token, problem) in [
            ("", "unexpected end of JSON input"),
            ("!!", "illegal base64 data at input byte 0"),
            ("a", "illegal base64 data at input byte 0"),
            ("e30=", "illegal base64 data at input byte 3"),
            (
                "nonsense",
                "invalid character '\\u009e' looking for beginning of value",
            ),
            ("abc", "invalid character 'i' looking for beginning of value"),
            ("e30", "server does not recognize this encoded version "),
            (
                "W10",
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            (
                "eyJ2IjoxfQ",
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIsInN0YXJ0IjoiYS8uLi9iIn0",
                "a/../b",
            ),
        ] {
            let expected = format!("invalid continue token: continue key is not valid: {problem}");
            assert_eq!(ContinueToken::decode(token), Err(expected), "{token}");
        }
    }
}
