//! The request as webhooks are sent it and as expressions see it, without its objects.

use super::Selection;
use crate::host::Equivalent;
use machinery_meta::{GroupVersionKind, GroupVersionResource, UserInfo};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

#[derive(Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

/// All of a request but its objects and options.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head<'a> {
    uid: &'a str,
    kind: Kind<'a>,
    resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Kind<'a>,
    request_resource: Resource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'a str,
    user_info: User<'a>,
    dry_run: bool,
}

impl<'a> From<&'a GroupVersionKind> for Kind<'a> {
    fn from(own: &'a GroupVersionKind) -> Self {
        Self {
            group: &own.group,
            version: &own.version,
            kind: &own.kind,
        }
    }
}

impl<'a> From<&'a GroupVersionResource> for Resource<'a> {
    fn from(own: &'a GroupVersionResource) -> Self {
        Self {
            group: &own.group,
            version: &own.version,
            resource: &own.resource,
        }
    }
}

impl<'a> From<&'a UserInfo> for User<'a> {
    fn from(own: &'a UserInfo) -> Self {
        Self {
            username: &own.name,
            uid: &own.uid,
            groups: &own.groups,
            extra: &own.extra,
        }
    }
}

/// The request as expressions see it: all of the review but its objects.
pub(crate) fn json(selection: &Selection<'_>, invocation: &Equivalent) -> serde_json::Value {
    let mut own = serde_json::to_value(head("", selection, invocation)).unwrap_or_default();
    let options = selection.host.options();
    let options = options.and_then(|own| serde_json::from_str(&own).ok());
    if let Some(members) = own.as_object_mut() {
        members.remove("uid");
        members.insert("options".to_owned(), options.unwrap_or_default());
    }
    own
}

/// The request as match conditions see it: with the kind of the invocation, and the resource of the request's address.
pub(crate) fn of_conditions(mut request: serde_json::Value) -> serde_json::Value {
    request["resource"] = request["requestResource"].clone();
    request
}

pub(crate) fn head<'a>(uid: &'a str, selection: &Selection<'a>, invocation: &'a Equivalent) -> Head<'a> {
    let (request, host) = (selection.request, selection.host);
    Head {
        uid,
        kind: (&invocation.kind).into(),
        resource: (&invocation.resource).into(),
        sub_resource: request.subresource,
        request_kind: host.kind().into(),
        request_resource: host.resource().into(),
        request_sub_resource: request.subresource,
        name: request.name,
        namespace: selection.namespace(),
        operation: request.operation.as_str(),
        user_info: request.user.into(),
        dry_run: request.dry_run,
    }
}
