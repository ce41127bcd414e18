//! May somebody do something? `SubjectAccessReview` and its local and self forms.

use super::spec::{SelectorAttributes, SubjectAccessReviewSpec};
use super::{Asked, ReviewError, Reviewer};
use crate::authz::attributes::{ResourceTarget, Target};
use crate::authz::{Attributes, Decision};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, FieldSelector, UserInfo};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    allowed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    denied: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

pub(super) async fn subject(reviewer: &Reviewer, spec: &[u8]) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    let mut problems = check_attributes(&spec);
    problems.extend(check_user(&spec));
    decide(reviewer, &given_user(&spec), &spec, problems).await
}

pub(super) async fn local(
    reviewer: &Reviewer,
    asked: Asked<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    let mut problems = check_attributes(&spec);
    problems.extend(check_user(&spec));
    let path = FieldPath::new("spec");
    if spec.non_resource_attributes.is_some() {
        let value = Shown(as_json(&spec.non_resource_attributes));
        let path = path.child("nonResourceAttributes");
        problems.push(FieldError::invalid(
            &path,
            value,
            "disallowed on this kind of request",
        ));
    }
    let given = spec
        .resource_attributes
        .as_ref()
        .map(|attributes| attributes.namespace.as_str())
        .unwrap_or_default();
    if problems.is_empty() && given != asked.namespace {
        let path = path.child("resourceAttributes").child("namespace");
        problems.push(FieldError::invalid(&path, given, "must match metadata.namespace"));
    }
    decide(reviewer, &given_user(&spec), &spec, problems).await
}

pub(super) async fn own(reviewer: &Reviewer, asked: Asked<'_>, spec: &[u8]) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    decide(reviewer, asked.user, &spec, check_attributes(&spec)).await
}

fn as_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn check_attributes(spec: &SubjectAccessReviewSpec) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let shown = Shown(as_json(&spec.non_resource_attributes));
    match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(_), Some(_)) => vec![FieldError::invalid(
            &path.child("nonResourceAttributes"),
            shown,
            "cannot be specified in combination with resourceAttributes",
        )],
        (None, None) => vec![FieldError::invalid(
            &path,
            shown,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

fn check_user(spec: &SubjectAccessReviewSpec) -> Option<FieldError> {
    let path = FieldPath::new("spec").child("user");
    let nobody = spec.user.is_empty() && spec.groups.is_empty();
    nobody.then(|| {
        FieldError::invalid(
            &path,
            &spec.user,
            "at least one of user or group must be specified",
        )
    })
}

fn given_user(spec: &SubjectAccessReviewSpec) -> UserInfo {
    UserInfo {
        name: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone(),
    }
}

async fn decide(
    reviewer: &Reviewer,
    user: &UserInfo,
    spec: &SubjectAccessReviewSpec,
    problems: Vec<FieldError>,
) -> Result<Vec<u8>, ReviewError> {
    if !problems.is_empty() {
        return Err(ReviewError::Invalid(problems));
    }
    let fields = spec
        .resource_attributes
        .as_ref()
        .and_then(|a| a.field_selector.as_ref())
        .and_then(field_selector);
    let (verb, target) = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(asked), _) => {
            let target = ResourceTarget {
                group: &asked.group,
                version: &asked.version,
                resource: &asked.resource,
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name: &asked.name,
                field_selector: fields.as_ref(),
                label_selector: None,
            };
            (asked.verb.as_str(), Target::Resource(target))
        }
        (None, Some(asked)) => (asked.verb.as_str(), Target::Path(&asked.path)),
        (None, None) => return Err(ReviewError::BadRequest("no attributes".to_owned())),
    };
    let decision = reviewer
        .authorizers
        .authorize(&Attributes { user, verb, target })
        .await;
    let status = Status {
        allowed: decision.is_allowed(),
        denied: matches!(decision, Decision::Deny(_)),
        reason: decision.reason().to_string(),
    };
    Ok(serde_json::to_vec(&status)?)
}

/// Requirements nobody can parse narrow nothing, so they are left out.
fn field_selector(given: &SelectorAttributes) -> Option<FieldSelector> {
    if !given.raw_selector.is_empty() {
        return FieldSelector::parse(&given.raw_selector).ok();
    }
    let terms =
        given
            .requirements
            .iter()
            .filter_map(|one| match (one.operator.as_str(), one.values.as_slice()) {
                ("In", [value]) => Some(format!("{}={value}", one.key)),
                ("NotIn", [value]) => Some(format!("{}!={value}", one.key)),
                _ => None,
            });
    FieldSelector::parse(&terms.collect::<Vec<_>>().join(",")).ok()
}
