//! The token by which a node joins: a bootstrap token, and the hash of the authority by which the node knows the cluster.
//!
//! `K10HASH::ID.SECRET`, the form of k3s, with the hash of kubeadm's `--discovery-token-ca-cert-hash`: SHA-256 of the public key.

use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "K10";
/// The form in which kubeadm writes the hash.
const HASH_PREFIX: &str = "sha256:";

/// The text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinTokenError {
    #[error("the token must be K10HASH::ID.SECRET, as `knarr token create` prints it, or ID.SECRET")]
    Form,
    #[error("the hash must be sha256:HEX, with 64 hexadecimal digits")]
    Hash,
}

/// See the module. Its secret is not shown by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JoinToken {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// In lower-case hexadecimal.
    pub(crate) authority_hash: Option<String>,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl JoinToken {
    /// The bearer token.
    pub(crate) fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hash) = &self.authority_hash {
            write!(f, "{PREFIX}{hash}::")?;
        }
        write!(f, "{}", self.bearer())
    }
}

impl FromStr for JoinToken {
    type Err = JoinTokenError;

    fn from_str(text: &str) -> Result<Self, JoinTokenError> {
        let text = text.trim();
        let (hash, token) = match text.strip_prefix(PREFIX).and_then(|rest| rest.split_once("::")) {
            Some((hash, token)) => (Some(hash), token),
            None => (None, text),
        };
        let hash = hash.map(authority_hash).transpose()?;
        let (id, secret) = token.split_once('.').ok_or(JoinTokenError::Form)?;
        if !is_part(id, ID_LENGTH) || !is_part(secret, SECRET_LENGTH) {
            return Err(JoinTokenError::Form);
        }
        Ok(Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
            authority_hash: hash,
        })
    }
}

pub(super) const ID_LENGTH: usize = 6;
pub(super) const SECRET_LENGTH: usize = 16;

/// `[a-z0-9]` so many times.
pub(super) fn is_part(text: &str, length: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() == length && text.bytes().all(is_plain)
}

/// A hash with or without kubeadm's prefix, in lower case.
pub(crate) fn authority_hash(text: &str) -> Result<String, JoinTokenError> {
    let hash = text
        .strip_prefix(HASH_PREFIX)
        .unwrap_or(text)
        .to_ascii_lowercase();
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(hash).ok_or(JoinTokenError::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_tokens_are_read_in_both_forms() {
        let hash = "0f".repeat(32);
        let text = format!("K10{hash}::abcdef.0123456789abcdef");
        let token: JoinToken = text.parse().unwrap();
        assert_eq!(token.authority_hash.as_deref(), Some(hash.as_str()));
        assert_eq!(token.bearer(), "abcdef.0123456789abcdef");
        assert_eq!(token.to_string(), text);
        let plain: JoinToken = "abcdef.0123456789abcdef\n".parse().unwrap();
        assert_eq!(
            (plain.authority_hash.clone(), plain.to_string()),
            (None, token.bearer())
        );
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        for wrong in [
            "",
            "abcdef",
            "abcdef.0123456789abcde",
            "ABCDEF.0123456789abcdef",
            "K10::abcdef.0123456789abcdef",
        ] {
            assert!(wrong.parse::<JoinToken>().is_err(), "{wrong}");
        }
        assert_eq!(
            authority_hash(&format!("sha256:{}", hash.to_uppercase())),
            Ok(hash)
        );
        assert_eq!(authority_hash("sha256:00"), Err(JoinTokenError::Hash));
    }
}
