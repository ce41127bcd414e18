//! Refusals of plugins, webhooks and policies as errors of the API.

use crate::policies::Denial;
use crate::{AdmissionError, Rejection, RejectionCause};
use apiserver_registry::error::{Cause, DeniedDetails, DeniedStatus, OPTIMISTIC_LOCK_MESSAGE};
use apiserver_registry::{Attributes, RegistryError};
use machinery_meta::GroupResource;
use machinery_schema::Tree;

/// The name behind a refusal: the object's own where the request has none yet, or what its name will begin with.
fn shown_name<'a>(attributes: &'a Attributes, object: Option<&'a Tree>) -> &'a str {
    let of = |member| object.map_or("", |object| object.str_at(&["metadata", member]));
    let names = [&*attributes.name, of("name"), of("generateName")];
    names
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("Unknown")
}

fn denied(given: Rejection) -> DeniedStatus {
    let cause = |own: RejectionCause| Cause {
        reason: own.reason,
        message: own.message,
        field: own.field,
    };
    DeniedStatus {
        code: given.code,
        reason: given.reason,
        message: given.message,
        details: given.details.map(|own| DeniedDetails {
            name: own.name,
            group: own.group,
            kind: own.kind,
            uid: own.uid,
            causes: own.causes.unwrap_or_default().into_iter().map(cause).collect(),
            retry_after_seconds: own.retry_after_seconds.unwrap_or_default(),
        }),
    }
}

/// The refusal of policies; it names the object as upstream's `NewForbidden` does.
fn denied_by_policies(given: Denial, resource: &GroupResource, name: &str) -> DeniedStatus {
    let message = match given.is_whole {
        true => given.message,
        false => format!("{resource} {name:?} is forbidden: {}", given.message),
    };
    let cause = |message| Cause {
        reason: String::new(),
        message,
        field: String::new(),
    };
    DeniedStatus {
        code: given.code,
        reason: given.reason,
        message,
        details: Some(DeniedDetails {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            causes: given.causes.into_iter().map(cause).collect(),
            ..DeniedDetails::default()
        }),
    }
}

pub(crate) fn refused(
    error: AdmissionError,
    attributes: &Attributes,
    object: Option<&Tree>,
) -> RegistryError {
    let resource = attributes.resource.group_resource();
    let name = shown_name(attributes, object);
    match error {
        AdmissionError::Forbidden(why) => RegistryError::forbidden(&resource, name, why),
        AdmissionError::ForbiddenFor { why, cause } => RegistryError::Forbidden {
            resource,
            name: name.to_owned(),
            detail: why,
            causes: vec![Cause {
                reason: cause,
                message: String::new(),
                field: String::new(),
            }],
        },
        AdmissionError::Invalid(errors) => RegistryError::Invalid {
            kind: attributes.kind.group_kind(),
            name: name.to_owned(),
            errors,
        },
        AdmissionError::NamespaceTerminating(namespace) => {
            let detail = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let cause = Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            RegistryError::Forbidden {
                resource,
                name: name.to_owned(),
                detail,
                causes: vec![cause],
            }
        }
        AdmissionError::NotFound { resource, name } => RegistryError::NotFound { resource, name },
        AdmissionError::BadRequest(message) => RegistryError::BadRequest(message),
        AdmissionError::TooManyRequests(message) => RegistryError::TooManyRequests {
            message,
            seconds: 0,
            causes: Vec::new(),
        },
        AdmissionError::Busy => RegistryError::busy(),
        AdmissionError::Conflict { resource, name } => {
            RegistryError::conflict(&resource, &name, OPTIMISTIC_LOCK_MESSAGE)
        }
        AdmissionError::Unclassified(message) => RegistryError::Unclassified(message),
        AdmissionError::Internal(message) => RegistryError::Internal(message),
        AdmissionError::Timeout(message) => RegistryError::Timeout(message),
        AdmissionError::Rejected(rejection) => RegistryError::Denied(Box::new(denied(*rejection))),
        AdmissionError::Denied(denial) => {
            let denied = denied_by_policies(*denial, &resource, name);
            RegistryError::Denied(Box::new(denied))
        }
        AdmissionError::Reading(error) => RegistryError::Internal(error.to_string()),
    }
}
