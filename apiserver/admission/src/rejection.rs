//! The `Status` with which a webhook rejects a request.

use serde::{Deserialize, Serialize};

/// Bytes that are taken of a message.
const MAX_MESSAGE_BYTES: usize = 32 << 10;
/// Causes that are taken.
const MAX_CAUSES: usize = 64;
const LEAST_CODE: u16 = 400;
/// The last code that an answer of HTTP can have.
const LAST_CODE: i64 = 599;

/// A `Status`, as far as a client sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rejection {
    #[serde(deserialize_with = "code")]
    pub code: u16,
    #[serde(deserialize_with = "text")]
    pub reason: String,
    #[serde(deserialize_with = "text")]
    pub message: String,
    pub details: Option<RejectionDetails>,
}

/// `details` of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RejectionDetails {
    #[serde(deserialize_with = "text")]
    pub name: String,
    #[serde(deserialize_with = "text")]
    pub group: String,
    #[serde(deserialize_with = "text")]
    pub kind: String,
    #[serde(deserialize_with = "text")]
    pub uid: String,
    pub causes: Option<Vec<RejectionCause>>,
    pub retry_after_seconds: Option<u32>,
}

/// One cause of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RejectionCause {
    #[serde(deserialize_with = "text")]
    pub reason: String,
    #[serde(deserialize_with = "text")]
    pub message: String,
    #[serde(deserialize_with = "text")]
    pub field: String,
}

/// Go reads null as the empty text.
fn text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(from)?.unwrap_or_default())
}

fn code<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    let given = Option::<i64>::deserialize(from)?.unwrap_or_default();
    Ok(u16::try_from(given.clamp(0, LAST_CODE)).unwrap_or_default())
}

/// The beginning of a message: the text of a webhook or an expression has no bound.
pub(crate) fn cut(text: String) -> String {
    cut_to(text, MAX_MESSAGE_BYTES)
}

/// The beginning of a text, at most so many bytes.
pub(crate) fn cut_to(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

impl Rejection {
    /// The answer for a request that the webhook has not allowed (upstream's `ToStatusErr`).
    pub(crate) fn by(webhook: &str, given: Option<Self>) -> Self {
        let mut own = given.unwrap_or_default();
        own.code = own.code.max(LEAST_CODE);
        let denied = format!("admission webhook {webhook:?} denied the request");
        own.message = match (own.message.as_str(), own.reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", why) | (why, _) => format!("{denied}: {why}"),
        };
        for text in [&mut own.message, &mut own.reason] {
            *text = cut(std::mem::take(text));
        }
        if let Some(causes) = own.details.as_mut().and_then(|own| own.causes.as_mut()) {
            causes.truncate(MAX_CAUSES);
            causes
                .iter_mut()
                .for_each(|cause| cause.message = cut(std::mem::take(&mut cause.message)));
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_have_upstreams_words() {
        let of = |given: &str| {
            let given: Option<Rejection> = serde_json::from_str(given).unwrap();
            let own = Rejection::by("a.b.c", given);
            (own.code, own.message, own.reason)
        };
        let denied = "admission webhook \"a.b.c\" denied the request";
        let say = |code, rest: &str, reason: &str| (code, format!("{denied}{rest}"), reason.to_owned());
        assert_eq!(of("null"), say(400, " without explanation", ""));
        assert_eq!(
            of(r#"{"code": 200, "status": "Success"}"#),
            say(400, " without explanation", "")
        );
        assert_eq!(of(r#"{"code": 403, "message": "no"}"#), say(403, ": no", ""));
        assert_eq!(
            of(r#"{"reason": "Forbidden"}"#),
            say(400, ": Forbidden", "Forbidden")
        );
        assert_eq!(of(r#"{"code": 99999, "message": null}"#).0, 599);
        let long = format!(r#"{{"message": "{}"}}"#, "é".repeat(MAX_MESSAGE_BYTES));
        assert!(of(&long).1.len() <= MAX_MESSAGE_BYTES);
    }
}
