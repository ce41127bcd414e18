//! The only maker of `Status` answers, in upstream's reasons and words.

use crate::body::Body;
use crate::error::ApiError;
use crate::negotiation::{ErrorForm, Format};
use apiserver_registry::RegistryError;
use apiserver_registry::error::{Cause, DeniedDetails};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use machinery_meta::{FieldError, FieldPath, GroupKind, GroupResource};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;

/// `v1.Status` of meta/v1.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: ListMeta,
    pub status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

#[derive(Debug, Clone, Default, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    fresh_continue: Option<String>,
}

/// `details` of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero_seconds")]
    pub retry_after_seconds: u32,
}

/// One cause of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
fn is_zero_seconds(seconds: &u32) -> bool {
    *seconds == 0
}

impl From<&Cause> for StatusCause {
    fn from(cause: &Cause) -> Self {
        Self {
            reason: cause.reason.clone(),
            message: cause.message.clone(),
            field: cause.field.clone(),
        }
    }
}

impl Details {
    fn of(resource: &GroupResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            ..Self::default()
        }
    }

    fn causes(mut self, causes: &[Cause]) -> Self {
        self.causes = causes.iter().map(StatusCause::from).collect();
        self
    }

    fn retry(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = seconds;
        self
    }
}

impl Status {
    fn failure(
        code: u16,
        reason: &'static str,
        message: impl Into<String>,
        details: Option<Details>,
    ) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta::default(),
            status: "Failure",
            message: message.into(),
            reason: Cow::Borrowed(reason),
            details,
            code,
        }
    }

    /// The answer to a delete after which nothing of the object is left.
    pub fn success(details: Option<Details>) -> Self {
        Self {
            status: "Success",
            ..Self::failure(0, "", "", details)
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a Status has only strings and numbers")
    }
}

/// An error that has a `Status` (upstream's interface of that name).
pub trait ApiStatus {
    fn status(&self) -> Status;
}

/// The `Status` of an error.
pub fn of(error: &impl ApiStatus) -> Status {
    error.status()
}

impl ApiStatus for ApiError {
    fn status(&self) -> Status {
        let empty = Some(Details::default());
        match self {
            Self::Registry(error) => error.status(),
            Self::MethodNotAllowed => Status::failure(405, "MethodNotAllowed", self.to_string(), empty),
            Self::NotAcceptable(_) | Self::NotAcceptableView { .. } => {
                Status::failure(406, "NotAcceptable", self.to_string(), None)
            }
            Self::NoRepresentation(_) => Status::failure(406, "NotAcceptable", self.to_string(), empty),
            Self::NoConsumer => Status::failure(415, "UnsupportedMediaType", self.to_string(), empty),
            Self::UnsupportedMediaType(_) => {
                Status::failure(415, "UnsupportedMediaType", self.to_string(), None)
            }
            Self::Unauthorized(message) => Status::failure(401, "Unauthorized", message, None),
            Self::SlowBody => Status::failure(408, "Timeout", self.to_string(), None),
            Self::Answered { code, resource, name } => answered(*code, resource, name),
        }
    }
}

impl ApiStatus for RegistryError {
    fn status(&self) -> Status {
        of_registry(self)
    }
}

fn of_registry(error: &RegistryError) -> Status {
    use RegistryError as E;
    match error {
        E::NotFound { resource, name } => Status::failure(
            404,
            "NotFound",
            format!("{resource} {name:?} not found"),
            Some(Details::of(resource, name)),
        ),
        E::NoSuchResource => Status::failure(404, "NotFound", error.to_string(), Some(Details::default())),
        E::AlreadyExists {
            resource,
            name,
            deleting,
        } => Status::failure(
            409,
            "AlreadyExists",
            format!(
                "{}{resource} {name:?} already exists",
                if *deleting {
                    "object is being deleted: "
                } else {
                    ""
                }
            ),
            Some(Details::of(resource, name)),
        ),
        E::GeneratedNamesTaken { resource, name } => Status::failure(
            409,
            "AlreadyExists",
            format!(
                "{resource} {name:?} already exists, the server was not able to generate a unique name for the object"
            ),
            Some(Details::of(resource, name).retry(1)),
        ),
        E::Conflict {
            resource,
            name,
            detail,
        } => Status::failure(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} {name:?}: {detail}"),
            Some(Details::of(resource, name)),
        ),
        E::ApplyConflict { message, causes } => {
            Status::failure(409, "Conflict", message, Some(Details::default().causes(causes)))
        }
        E::Invalid { kind, name, errors } => invalid(kind, name, errors),
        E::BadRequest(message) => Status::failure(400, "BadRequest", message, None),
        E::Forbidden {
            resource,
            name,
            detail,
            causes,
        } => forbidden(resource, name, detail, causes),
        E::Expired {
            message,
            fresh_continue,
        } => expired(message, fresh_continue.clone()),
        E::TooLarge(limit) => Status::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
            None,
        ),
        E::TooManyRequests {
            message,
            seconds,
            causes,
        } => Status::failure(
            429,
            "TooManyRequests",
            message,
            // Where it is unknown when there is room again, upstream has no details.
            (*seconds > 0 || !causes.is_empty()).then(|| Details::default().causes(causes).retry(*seconds)),
        ),
        E::TooLargeRevision { requested, current } => Status::failure(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
            Some(Details::default().causes(&[too_large_cause()]).retry(1)),
        ),
        E::Timeout(message) => Status::failure(
            504,
            "Timeout",
            format!("Timeout: {message}"),
            Some(Details::default()),
        ),
        E::ServerTimeout {
            resource,
            verb,
            seconds,
        } => Status::failure(
            500,
            "ServerTimeout",
            format!(
                "The {verb} operation against {resource} could not be completed at this time, please try again."
            ),
            Some(Details {
                name: verb.clone(),
                ..Details::of(resource, "").retry(*seconds)
            }),
        ),
        E::Unavailable(message) => Status::failure(503, "ServiceUnavailable", message, None),
        E::TooLargePatch(message) => Status::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
            None,
        ),
        E::Unprocessable(_) => Status::failure(422, "Invalid", error.to_string(), Some(Details::default())),
        E::Internal(message) | E::Unreadable(message) => internal(message),
        E::StorageRead {
            resource,
            message,
            causes,
        } => Status::failure(
            500,
            "StorageReadError",
            message,
            Some(Details::of(resource, "list").causes(causes)),
        ),
        E::Unclassified(message) => Status::failure(500, "", message, None),
        E::Denied(given) => Status {
            reason: Cow::Owned(given.reason.clone()),
            ..Status::failure(
                given.code,
                "",
                &*given.message,
                given.details.as_ref().map(denied_details),
            )
        },
    }
}

fn denied_details(given: &DeniedDetails) -> Details {
    let details = Details {
        name: given.name.clone(),
        group: given.group.clone(),
        kind: given.kind.clone(),
        uid: given.uid.clone(),
        ..Details::default()
    };
    details.causes(&given.causes).retry(given.retry_after_seconds)
}

fn answered(code: u16, resource: &GroupResource, name: &str) -> Status {
    let (reason, message) = match code {
        404 => (
            "NotFound",
            "the server could not find the requested resource".to_owned(),
        ),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".to_owned(),
        ),
        403 => (
            "Forbidden",
            "the server does not allow access to the requested resource".to_owned(),
        ),
        _ => (
            "Unknown",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    let details = Details::of(resource, name);
    Status::failure(
        code,
        reason,
        format!("{message} ( {resource} {name})"),
        Some(details),
    )
}

fn too_large_cause() -> Cause {
    Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    }
}

fn forbidden(resource: &GroupResource, name: &str, detail: &str, causes: &[Cause]) -> Status {
    let message = match (name, resource.resource.as_str()) {
        ("", "") => format!("forbidden: {detail}"),
        ("", _) => format!("{resource} is forbidden: {detail}"),
        _ => format!("{resource} {name:?} is forbidden: {detail}"),
    };
    Status::failure(
        403,
        "Forbidden",
        message,
        Some(Details::of(resource, name).causes(causes)),
    )
}

fn expired(message: &str, fresh_continue: Option<String>) -> Status {
    let mut status = Status::failure(410, "Expired", message, None);
    status.metadata.fresh_continue = fresh_continue;
    status
}

fn internal(message: &str) -> Status {
    let causes = [Cause {
        message: message.to_owned(),
        ..Cause::default()
    }];
    Status::failure(
        500,
        "InternalError",
        format!("Internal error occurred: {message}"),
        Some(Details::default().causes(&causes)),
    )
}

/// Bound of the words on one object's problems in an answer; of more the answer says how many they are.
const MAX_SHOWN_BYTES: usize = 1 << 20;
/// Bytes of a cause beside its texts, about.
const CAUSE_BYTES: usize = 64;

/// The first problems, which have room; the first of all has.
fn shown(errors: &[FieldError]) -> &[FieldError] {
    let mut bytes = 0;
    let room = errors.iter().position(|error| {
        bytes += CAUSE_BYTES + error.path.as_str().len() + error.detail.len();
        bytes += error.value.as_ref().map_or(0, String::len);
        bytes > MAX_SHOWN_BYTES
    });
    &errors[..room.map_or(errors.len(), |at| at.max(1))]
}

fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Status {
    let mut shown = Cow::Borrowed(shown(errors));
    if shown.len() < errors.len() {
        let detail = format!(
            "too many problems, {} more are not listed",
            errors.len() - shown.len()
        );
        shown
            .to_mut()
            .push(FieldError::forbidden(&FieldPath::root(), detail));
    }
    let mut known = HashSet::new();
    let mut sentences: Vec<String> = shown.iter().map(ToString::to_string).collect();
    sentences.retain(|sentence| known.insert(sentence.clone()));
    let all = match sentences.as_slice() {
        [] => String::new(),
        [one] => format!(": {one}"),
        more => format!(": [{}]", more.join(", ")),
    };
    let causes = shown.iter().map(|error| StatusCause {
        reason: error.kind.reason().to_owned(),
        message: error.message(),
        field: error.path.to_string(),
    });
    let details = Details {
        name: name.to_owned(),
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        causes: causes.collect(),
        ..Details::default()
    };
    Status::failure(
        422,
        "Invalid",
        format!("{kind} {name:?} is invalid{all}"),
        Some(details),
    )
}

/// The whole answer to an error, in the form [`negotiation::of_errors`](crate::negotiation::of_errors) found. The
/// [`Status`] is among its extensions, for the audit log.
pub fn response(error: &impl ApiStatus, form: ErrorForm) -> http::Response<Body> {
    let status = error.status();
    let seconds = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    let mut response = written(status.code, status.to_json(), seconds, form);
    response.extensions_mut().insert(status);
    response
}

fn written(code: u16, json: String, retry_after_seconds: u32, form: ErrorForm) -> http::Response<Body> {
    let format = form.format;
    let (format, body) = match format {
        Format::Json if form.pretty => (format, crate::indented::indented(&json)),
        Format::Json => (format, (json + "\n").into_bytes()),
        Format::Yaml => (format, crate::yaml::from_json(json.as_bytes())),
        Format::Protobuf => match crate::protobuf::from_json("Status", json.as_bytes()) {
            Some(message) => (format, message),
            None => (Format::Json, (json + "\n").into_bytes()),
        },
    };
    let mut builder = http::Response::builder()
        .status(code)
        .header(CONTENT_TYPE, format.media_type());
    if retry_after_seconds > 0 {
        builder = builder.header(RETRY_AFTER, retry_after_seconds);
    }
    builder
        .body(Body::from(body))
        .expect("status code and headers are well formed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &RegistryError, expected: &str) {
        assert_eq!(of(error).to_json(), expected);
    }

    #[test]
    fn status_messages_match_upstream() {
        let pods = GroupResource::new("", "pods");
        check(
            &RegistryError::not_found(&pods, "a"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}"#,
        );
        check(
            &RegistryError::conflict(&GroupResource::new("apps", "deployments"), "a", "x"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"a\": x","reason":"Conflict","details":{"name":"a","group":"apps","kind":"deployments"},"code":409}"#,
        );
        check(
            &RegistryError::Invalid {
                kind: GroupKind {
                    group: String::new(),
                    kind: "Pod".into(),
                },
                name: "a".into(),
                errors: vec![FieldError::required(
                    &FieldPath::new("spec").child("containers"),
                    "",
                )],
            },
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Pod \"a\" is invalid: spec.containers: Required value","reason":"Invalid","details":{"name":"a","kind":"Pod","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.containers"}]},"code":422}"#,
        );
    }
    fn refused(count: usize, value: &str) -> Status {
        let problem = |at| FieldError::invalid(&FieldPath::new("a").index(at), value, "is wrong");
        of(&RegistryError::Invalid {
            kind: GroupKind {
                group: String::new(),
                kind: "Pod".into(),
            },
            name: "a".into(),
            errors: (0..count).map(problem).collect(),
        })
    }

    #[test]
    fn problems_beyond_a_bound_are_counted() {
        let all = refused(1000, "v").to_json();
        assert!(
            all.contains("a[999]: Invalid value"),
            "an ordinary answer has all of them"
        );
        assert!(!all.contains("not listed"));
        let some = refused(200_000, "v").to_json();
        assert!(some.len() < 4 << 20, "{} bytes", some.len());
        let last = r#" more are not listed","field":"<nil>"}]},"code":422}"#;
        assert!(some.ends_with(last), "{}", &some[some.len() - 200..]);
        let large = refused(2, &"v".repeat(MAX_SHOWN_BYTES)).to_json();
        assert!(
            large.contains("a[0]") && large.contains("1 more are not listed"),
            "the first problem is listed whatever its length"
        );
    }
}
