//! Projection of a token: its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, go_time};
use serde::Deserialize;
use std::borrow::Cow;

/// End of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiration {
    Never,
    At(Timestamp),
    /// It cannot be read, which counts as expired.
    Unreadable,
}

impl Expiration {
    /// The end that a Secret's text says.
    pub(super) fn of(text: &str) -> Self {
        match text {
            "" => Self::Never,
            text => go_time::parse(text).map_or(Self::Unreadable, Self::At),
        }
    }

    pub(super) fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(at) => at <= now,
            Self::Unreadable => true,
        }
    }
}

/// A Secret with a bootstrap token.
#[derive(Debug)]
pub(crate) struct TokenView {
    pub(super) expiration: Expiration,
}

#[derive(Deserialize)]
struct Token<'a> {
    #[serde(default, borrow)]
    data: Data<'a>,
}

#[derive(Deserialize, Default)]
struct Data<'a> {
    #[serde(default, borrow)]
    expiration: Cow<'a, str>,
}

impl Projection for TokenView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Token { data } = machinery_client::json::from_slice(json)?;
        let text = STANDARD.decode(&*data.expiration).unwrap_or_default();
        Ok(Self {
            expiration: Expiration::of(&String::from_utf8_lossy(&text)),
        })
    }
}
