//! Refusals of requests by policies.

use crate::rejection::cut;

/// Causes that are taken.
const MAX_CAUSES: usize = 64;

/// A refusal, which names the object as every refusal does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub code: u16,
    pub reason: String,
    pub message: String,
    /// The message is the whole one, and does not begin with the object.
    pub is_whole: bool,
    /// Messages of the causes.
    pub causes: Vec<String>,
}

impl Denial {
    /// The refusal of a validating policy.
    pub(super) fn by_validation(reason: &str, message: String) -> Self {
        let message = cut(message);
        Self {
            code: match reason {
                "Forbidden" => 403,
                "Unauthorized" => 401,
                "RequestEntityTooLarge" => 413,
                _ => 422,
            },
            reason: reason.to_owned(),
            causes: vec![message.clone()],
            message,
            is_whole: false,
        }
    }

    /// The refusal of mutating policies; the first message counts, and each is a cause.
    pub(super) fn by_mutations(reason: &str, messages: Vec<String>) -> Self {
        let causes: Vec<_> = messages.into_iter().take(MAX_CAUSES).map(cut).collect();
        Self {
            code: 403,
            reason: reason.to_owned(),
            message: causes.first().cloned().unwrap_or_default(),
            is_whole: true,
            causes,
        }
    }
}
