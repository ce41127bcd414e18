//! A webhook's answer: read, bounded and checked (upstream's `VerifyAdmissionResponse`).

use super::configuration::ReviewVersion;
use crate::rejection::{Rejection, cut_to};
use k8s_openapi::ByteString;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Audit annotations that are taken of one answer.
const MAX_ANNOTATIONS: usize = 64;
/// Bytes that are taken of each.
const MAX_ANNOTATION_BYTES: usize = 16 << 10;
/// Warnings that are taken of one answer; the client's recorder bounds their length.
const MAX_WARNINGS: usize = 64;
const MAX_WARNING_BYTES: usize = 4 << 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    response: Option<Response>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Option<Rejection>,
    #[serde(default)]
    patch: Option<ByteString>,
    #[serde(default)]
    patch_type: Option<String>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

/// An answer that counts.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Option<Rejection>,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) warnings: Vec<String>,
}

/// An answer that does not count, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadAnswer {
    /// The call has failed.
    Unreadable(String),
    /// It was answered, with something else.
    Invalid(String),
}

/// Reads an answer to the review with this uid.
pub(super) fn read(
    body: &[u8],
    version: ReviewVersion,
    uid: &str,
    mutates: bool,
) -> Result<Answer, BadAnswer> {
    let unreadable = |error: serde_json::Error| {
        BadAnswer::Unreadable(format!("couldn't get version/kind; json parse error: {error}"))
    };
    let review: Review = serde_json::from_slice(body).map_err(unreadable)?;
    check_kind(&review, version)?;
    let invalid = |why: String| Err(BadAnswer::Invalid(why));
    let Some(response) = review.response else {
        return invalid("webhook response was absent".to_owned());
    };
    if version == ReviewVersion::V1 && response.uid != uid {
        return invalid(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    let patch = response.patch.map(|own| own.0).unwrap_or_default();
    let patch_type = patch_type(version, &patch, response.patch_type, mutates).map_err(BadAnswer::Invalid)?;
    Ok(Answer {
        allowed: response.allowed,
        status: response.status,
        patch: if mutates { patch } else { Vec::new() },
        patch_type,
        annotations: annotations(response.audit_annotations),
        warnings: warnings(response.warnings),
    })
}

fn check_kind(review: &Review, version: ReviewVersion) -> Result<(), BadAnswer> {
    if review.kind.is_empty() {
        let why = "Object 'Kind' is missing in the answer";
        return Err(BadAnswer::Unreadable(why.to_owned()));
    }
    let expected = version.api_version();
    if review.kind == "AdmissionReview" && review.api_version == expected {
        return Ok(());
    }
    let group_version = match review.api_version.as_str() {
        "" => "/",
        own => own,
    };
    Err(BadAnswer::Invalid(format!(
        "expected webhook response of {expected}, Kind=AdmissionReview, got {group_version}, Kind={}",
        review.kind
    )))
}

/// The type of the patch; in v1beta1 upstream does not check what a webhook names.
fn patch_type(
    version: ReviewVersion,
    patch: &[u8],
    given: Option<String>,
    mutates: bool,
) -> Result<String, String> {
    let wrong = match (version, mutates, patch.is_empty(), &given) {
        (ReviewVersion::V1Beta1, true, false, _) => return Ok("JSONPatch".to_owned()),
        (ReviewVersion::V1Beta1, ..) => return Ok(String::new()),
        (_, false, false, _) => "validating webhook may not return response.patch",
        (_, false, _, Some(_)) => "validating webhook may not return response.patchType",
        (_, true, false, None) => "webhook returned response.patch but not response.patchType",
        (_, true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (_, true, _, Some(own)) if own.is_empty() => {
            return Err(format!("webhook returned invalid response.patchType of {own:?}"));
        }
        _ => return Ok(given.unwrap_or_default()),
    };
    Err(wrong.to_owned())
}

fn annotations(given: Option<BTreeMap<String, String>>) -> Vec<(String, String)> {
    let given = given.unwrap_or_default().into_iter().take(MAX_ANNOTATIONS);
    given
        .map(|(key, value)| (key, cut_to(value, MAX_ANNOTATION_BYTES)))
        .collect()
}

fn warnings(given: Option<Vec<String>>) -> Vec<String> {
    let given = given.unwrap_or_default().into_iter().take(MAX_WARNINGS);
    given.map(|warning| cut_to(warning, MAX_WARNING_BYTES)).collect()
}
