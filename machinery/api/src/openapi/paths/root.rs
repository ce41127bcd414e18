//! Operations of discovery, and of what a server answers beside its API.

use super::{Content, OBJECTS, OK, Route, base};
use std::borrow::Cow;

/// The forms of a discovery document, which reads nothing.
fn discovery(path: String, operation: &str, description: &'static str, kind: &str) -> Route<'static> {
    Route {
        consumes: OBJECTS,
        ..get(path, operation, description, OBJECTS, Content::meta(kind))
    }
}

fn get(
    path: String,
    operation: &str,
    description: &'static str,
    produces: &'static [&'static str],
    answer: Content,
) -> Route<'static> {
    Route {
        method: "get",
        path,
        operation: operation.to_owned(),
        description: Cow::Borrowed(description),
        about: None,
        consumes: &[],
        produces: produces.into(),
        parameters: Vec::new(),
        body: None,
        answer,
        codes: OK,
    }
}

/// The route of the resources of a group version.
pub(in crate::openapi) fn group_version(group: &str, version: &str) -> Route<'static> {
    let path = format!("{}/", base(group, version));
    discovery(
        path,
        "getAPIResources",
        "get available resources",
        "APIResourceList",
    )
}

/// Addresses of the documents that belong to no group.
pub(in crate::openapi) const ADDRESSES: [&str; 5] = [
    ".well-known/openid-configuration",
    "api",
    "apis",
    "openid/v1/jwks",
    "version",
];

/// The operation that stands at an address without a version: one of [`ADDRESSES`] or `apis/GROUP`.
pub(in crate::openapi) fn at(address: &str) -> Option<Route<'static>> {
    const JSON: &[&str] = &["application/json"];
    let path = format!("/{address}/");
    let info = || Content::Model(INFO.to_owned());
    Some(match address {
        "api" => discovery(
            path,
            "getAPIVersions",
            "get available API versions",
            "APIVersions",
        ),
        "apis" => discovery(
            path,
            "getAPIVersions",
            "get available API versions",
            "APIGroupList",
        ),
        "version" => Route {
            consumes: JSON,
            ..get(
                path,
                "getCodeVersion",
                "get the version information for this server",
                JSON,
                info(),
            )
        },
        ".well-known/openid-configuration" => get(
            path,
            "getServiceAccountIssuerOpenIDConfiguration",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            JSON,
            Content::Text,
        ),
        "openid/v1/jwks" => get(
            path,
            "getServiceAccountIssuerOpenIDKeyset",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            &["application/jwk-set+json"],
            Content::Text,
        ),
        _ if address.starts_with("apis/") => {
            discovery(path, "getAPIGroup", "get information of a group", "APIGroup")
        }
        _ => return None,
    })
}

/// Model of the answer of `/version`.
pub(in crate::openapi) const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
