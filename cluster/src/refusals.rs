//! Answers that a fault gives in the server's place: refusals of a request that it never saw, and failures of one that it
//! carried out.

use crate::faults::{Rates, happens};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::Full;
use machinery_runtime::Runtime;

/// An answer of the API, as its `Status` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: u16,
    reason: &'static str,
    message: &'static str,
    retry_after_seconds: Option<u32>,
}

const fn refusal(code: u16, reason: &'static str, message: &'static str) -> Refusal {
    Refusal {
        code,
        reason,
        message,
        retry_after_seconds: None,
    }
}

const CONFLICT: Refusal = refusal(
    409,
    "Conflict",
    "the object has been modified; please apply your changes to the latest version",
);
const EXPIRED: Refusal = refusal(410, "Expired", "too old resource version");
const THROTTLED: Refusal = Refusal {
    retry_after_seconds: Some(1),
    ..refusal(
        429,
        "TooManyRequests",
        "the server has received too many requests",
    )
};
const QUOTA: Refusal = refusal(
    403,
    "Forbidden",
    "exceeded quota: fault, requested: pods=1, used: pods=1, limited: pods=1",
);
const WEBHOOK: Refusal = refusal(
    400,
    "BadRequest",
    "admission webhook \"fault.example.com\" denied the request: no",
);
const FAILURES: [Refusal; 3] = [
    refusal(
        500,
        "InternalError",
        "an error on the server has prevented the request from succeeding",
    ),
    refusal(
        503,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    ),
    refusal(
        504,
        "Timeout",
        "the request did not complete within the allotted timeout",
    ),
];

impl Refusal {
    /// The answer to a request that is not carried out, if one is drawn.
    pub(crate) fn before<B>(runtime: &Runtime, rates: Rates, request: &Request<B>) -> Option<Self> {
        let is_read = request.method() == Method::GET;
        if happens(runtime, rates.throttle) {
            return Some(THROTTLED);
        }
        if happens(runtime, rates.fail_before) {
            return Some(failure(runtime));
        }
        if is_read && is_resumed(request.uri().query()) && happens(runtime, rates.expire) {
            return Some(EXPIRED);
        }
        if matches!(*request.method(), Method::PUT | Method::PATCH) && happens(runtime, rates.conflict) {
            return Some(CONFLICT);
        }
        // Creations alone are counted by quotas; leases stay out of admission's way, as operators have it.
        let is_denied = request.method() == Method::POST && !request.uri().path().contains("/leases");
        if is_denied && happens(runtime, rates.deny) {
            return Some(if happens(runtime, 500) { QUOTA } else { WEBHOOK });
        }
        None
    }

    /// The answer in place of that of a mutation that was carried out, if one is drawn.
    pub(crate) fn after(runtime: &Runtime, rates: Rates, method: &Method) -> Option<Self> {
        let is_lost = *method != Method::GET && happens(runtime, rates.fail_after);
        is_lost.then(|| failure(runtime))
    }

    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        let Self {
            code,
            reason,
            message,
            ..
        } = self;
        let seconds = self.retry_after_seconds;
        let details = seconds.map_or_else(String::new, |own| {
            format!(r#","details":{{"retryAfterSeconds":{own}}}"#)
        });
        let message = message.replace('"', "\\\"");
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}{details}}}"#
        );
        let mut response = Response::builder()
            .status(code)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(seconds) = seconds {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        let made = response.body(Full::new(Bytes::from(body)));
        made.expect("a constant code and constant headers make an answer")
    }
}

fn failure(runtime: &Runtime) -> Refusal {
    let drawn = usize::try_from(runtime.random_u64() % 3).unwrap_or(0);
    FAILURES[drawn]
}

/// Reports whether a request watches from a revision that the client has seen.
fn is_resumed(query: Option<&str>) -> bool {
    let mut words = query.unwrap_or("").split('&').map(|word| word.split_once('='));
    let has = |name: &str, word: Option<(&str, &str)>| {
        word.is_some_and(|(own, value)| own == name && !value.is_empty() && value != "0")
    };
    let is_watch = words.clone().any(|word| has("watch", word));
    is_watch && words.any(|word| has("resourceVersion", word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_watches_are_told_from_lists() {
        for (query, expected) in [
            (
                Some("watch=true&resourceVersion=7&allowWatchBookmarks=true"),
                true,
            ),
            (
                Some("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
                false,
            ),
            (Some("resourceVersion=7"), false),
            (None, false),
        ] {
            assert_eq!(is_resumed(query), expected, "{query:?}");
        }
    }

    #[test]
    fn refusal_is_a_status() {
        let response = THROTTLED.response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let body = futures::executor::block_on(http_body_util::BodyExt::collect(response.into_body()));
        let body: serde_json::Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
        assert_eq!(
            (&body["code"], &body["details"]["retryAfterSeconds"]),
            (&429.into(), &1.into())
        );
    }
}
