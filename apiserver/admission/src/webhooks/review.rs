//! The AdmissionReview that a webhook is sent.

use super::configuration::ReviewVersion;
use crate::host::Equivalent;
use crate::matching::request::head;
use crate::matching::{Objects, Selection};
use machinery_schema::encode_json;

/// The review as JSON.
pub(super) fn json(
    version: ReviewVersion,
    uid: &str,
    selection: &Selection<'_>,
    invocation: &Equivalent,
    objects: Objects<'_>,
) -> Vec<u8> {
    let head = head(uid, selection, invocation);
    let version = version.api_version();
    let mut text =
        format!("{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"{version}\",\"request\":").into_bytes();
    serde_json::to_writer(&mut text, &head).expect("a request has only texts and a flag");
    // The closing brace comes after the members that are JSON already.
    text.pop();
    for (name, object) in [("object", objects.new), ("oldObject", objects.old)] {
        text.extend_from_slice(format!(",\"{name}\":").as_bytes());
        match object {
            Some(object) => encode_json(object, &mut text),
            None => text.extend_from_slice(b"null"),
        }
    }
    let options = selection.host.options();
    text.extend_from_slice(b",\"options\":");
    text.extend_from_slice(options.as_deref().unwrap_or("null").as_bytes());
    text.extend_from_slice(b"}}");
    text
}
