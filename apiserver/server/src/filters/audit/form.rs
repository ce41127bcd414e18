//! The JSON of an event: `audit.k8s.io/v1` `Event` and its parts.

use super::policy::{Level, Stage};
use apiserver_auth::share_in;
use apiserver_endpoints::RequestInfo;
use apiserver_endpoints::status::{Details, Status};
use machinery_meta::UserInfo;
use machinery_schema::Tree;
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Upstream's limit of user agents; here of names as well, which clients write at any length.
const MAX_TEXT_BYTES: usize = 1_024;
/// A `Status` repeats what it refuses.
const MAX_STATUS_BYTES: usize = 32 << 10;
const TRUNCATED: &str = "...TRUNCATED";

/// The text within upstream's limit of user agents.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    cut_to(text, MAX_TEXT_BYTES)
}

fn cut_to(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    (text[..text.floor_char_boundary(limit)].to_owned() + TRUNCATED).into()
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[IpAddr]>::is_empty")]
    pub(super) source_ips: &'a [IpAddr],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<&'a RawValue>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a BTreeMap<String, String>,
}

impl Event<'_> {
    /// The share of what waits that it takes: its user's.
    pub(super) fn share(&self) -> String {
        let namespace = self.object_ref.as_ref().map_or("", |own| own.namespace);
        share_in(&cut(self.user.username), &cut(namespace)).into_owned()
    }

    /// JSON in one line, with its end.
    pub(super) fn line(&self) -> Option<String> {
        match serde_json::to_string(self) {
            Ok(line) => Some(line + "\n"),
            Err(error) => {
                tracing::error!(%error, "an audit event cannot be written");
                None
            }
        }
    }
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata {
    pub(super) impersonation_constraint: &'static str,
}

#[derive(Serialize, Clone)]
pub(super) struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> User<'a> {
    pub(super) fn of(user: &'a UserInfo) -> Self {
        Self {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: &user.extra,
        }
    }
}

/// Name, namespace, uid and version that the object in the body has.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl Identity {
    pub(super) fn of(object: &Tree) -> Self {
        let own = |member| cut(object.str_at(&["metadata", member])).into_owned();
        Self {
            namespace: own("namespace"),
            name: own("name"),
            uid: own("uid"),
            resource_version: own("resourceVersion"),
        }
    }
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

impl<'a> ObjectRef<'a> {
    /// The address, completed from the object in the body.
    pub(super) fn of(info: &'a RequestInfo, object: Option<&'a Identity>) -> Self {
        let or = |address: &'a str, own: fn(&'a Identity) -> &'a str| match object {
            Some(object) if address.is_empty() => own(object),
            _ => address,
        };
        Self {
            resource: &info.resource,
            namespace: or(&info.namespace, |object| &object.namespace),
            name: or(&info.name, |object| &object.name),
            uid: or("", |object| &object.uid),
            api_group: &info.api_group,
            api_version: &info.api_version,
            resource_version: or("", |object| &object.resource_version),
            subresource: &info.subresource,
        }
    }
}

/// The part of `metav1.Status` that is recorded, within bounds.
#[derive(Debug, Default, Serialize)]
pub(super) struct ResponseStatus {
    metadata: Empty,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Debug, Default, Serialize)]
struct Empty {}

impl ResponseStatus {
    pub(super) fn of_code(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    pub(super) fn failure(code: u16, reason: &'static str, message: &str) -> Self {
        Self {
            status: "Failure",
            message: message.to_owned(),
            reason: Cow::Borrowed(reason),
            code,
            ..Self::default()
        }
    }

    /// The same with the code of the answer: a `Status` of a success has none.
    pub(super) fn with_code(self, code: u16) -> Self {
        Self { code, ..self }
    }

    pub(super) fn of(status: &Status) -> Self {
        Self {
            status: status.status,
            message: cut_to(&status.message, MAX_STATUS_BYTES).into_owned(),
            reason: status.reason.clone(),
            details: status.details.as_ref().map(bounded),
            code: status.code,
            ..Self::default()
        }
    }
}

/// Details without the causes that are too many or too long.
fn bounded(details: &Details) -> Details {
    let mut bytes = 0;
    let fitting = details.causes.iter().take_while(|cause| {
        bytes += cause.reason.len() + cause.message.len() + cause.field.len();
        bytes <= MAX_STATUS_BYTES
    });
    Details {
        name: cut(&details.name).into_owned(),
        group: cut(&details.group).into_owned(),
        kind: cut(&details.kind).into_owned(),
        uid: cut(&details.uid).into_owned(),
        causes: fitting.cloned().collect(),
        retry_after_seconds: details.retry_after_seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_registry::RegistryError;
    use machinery_meta::{FieldError, FieldPath, GroupKind};

    #[test]
    fn audit_statuses_are_bounded() {
        let value = "x".repeat(1 << 20);
        let errors = (0..3).map(|_| FieldError::invalid(&FieldPath::new("metadata"), value.as_str(), "long"));
        let error = RegistryError::Invalid {
            kind: GroupKind::default(),
            name: value.clone(),
            errors: errors.collect(),
        };
        let status = ResponseStatus::of(&apiserver_endpoints::status::of(&error));
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.len() < 2 * MAX_STATUS_BYTES, "{}", json.len());
        assert!(status.message.ends_with(TRUNCATED) && status.reason == "Invalid");
    }

    #[test]
    fn audit_texts_are_cut_between_characters() {
        assert_eq!(cut_to("aéb", 2), "a...TRUNCATED");
        assert_eq!(cut_to("aéb", 4), "aéb");
    }
}
