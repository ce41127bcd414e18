//! Answers of webhooks that are none, in the words of upstream's client (`NewGenericServerResponse`).

/// Bytes that are shown of an answer.
const SHOWN: usize = 2048;

/// The message of an answer with this code.
pub fn message(code: u16, body: &[u8]) -> String {
    let fixed = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => "the server does not allow access to the requested resource",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        415 => "the server was unable to process a request content of an unsupported type",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500..=599 => {
            let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
            let shown = match shown.trim() {
                "" => "unknown",
                shown => shown,
            };
            return format!("an error on the server ({shown:?}) has prevented the request from succeeding");
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
}
