//! A user's access: `SubjectAccessReview` and its local and self forms.

use super::selectors;
use super::spec::{NonResourceAttributes, SubjectAccessReviewSpec};
use super::{ReviewError, ReviewRequest, Reviewer};
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use crate::authz::{Attributes, Decision};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, UserInfo};
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    allowed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    denied: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

pub(super) async fn subject(
    reviewer: &Reviewer,
    review: ReviewRequest<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    let mut problems = check(&spec);
    problems.extend(check_metadata(review.metadata, &[], "must be empty"));
    decide(reviewer, review.user, &given_user(&spec), &spec, problems).await
}

pub(super) async fn local(
    reviewer: &Reviewer,
    review: ReviewRequest<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    let mut problems = check(&spec);
    let message = "must be empty except for namespace";
    problems.extend(check_metadata(review.metadata, &["namespace"], message));
    let path = FieldPath::new("spec");
    let given = spec.resource_attributes.as_ref();
    if let Some(given) = given.filter(|given| given.namespace != review.namespace) {
        let path = path.child("resourceAttributes").child("namespace");
        let value = given.namespace.as_str();
        problems.push(FieldError::invalid(&path, value, "must match metadata.namespace"));
    }
    if spec.non_resource_attributes.is_some() {
        let value = shown(spec.non_resource_attributes.as_ref());
        let path = path.child("nonResourceAttributes");
        problems.push(FieldError::invalid(
            &path,
            value,
            "disallowed on this kind of request",
        ));
    }
    decide(reviewer, review.user, &given_user(&spec), &spec, problems).await
}

pub(super) async fn own(
    reviewer: &Reviewer,
    review: ReviewRequest<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: SubjectAccessReviewSpec = serde_json::from_slice(spec)?;
    let mut problems: Vec<FieldError> = check_attributes(&spec).into_iter().collect();
    problems.extend(check_selectors(&spec));
    problems.extend(check_metadata(review.metadata, &[], "must be empty"));
    decide(reviewer, review.user, review.user, &spec, problems).await
}

/// Attributes as upstream shows them, in the members of its internal type.
fn shown(attributes: Option<&NonResourceAttributes>) -> Shown {
    let json = attributes.map_or(Value::Null, |own| json!({"Path": own.path, "Verb": own.verb}));
    Shown(json.to_string())
}

fn check(spec: &SubjectAccessReviewSpec) -> Vec<FieldError> {
    let mut problems: Vec<FieldError> = check_attributes(spec).into_iter().collect();
    problems.extend(check_user(spec));
    problems.extend(check_selectors(spec));
    problems
}

/// A review has no metadata: nothing of it is stored.
fn check_metadata(metadata: &str, ignored: &[&str], message: &str) -> Option<FieldError> {
    let members: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    };
    let counts = |name: &str| name != "managedFields" && !ignored.contains(&name);
    let says = members
        .iter()
        .any(|(name, value)| counts(name) && !is_empty(value));
    let shown = Shown(metadata.to_owned());
    says.then(|| FieldError::invalid(&FieldPath::new("metadata"), shown, message))
}

fn check_attributes(spec: &SubjectAccessReviewSpec) -> Option<FieldError> {
    let one = spec.resource_attributes.is_some() != spec.non_resource_attributes.is_some();
    let shown = shown(spec.non_resource_attributes.as_ref());
    let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    (!one).then(|| FieldError::invalid(&FieldPath::new("spec"), shown, message))
}

fn check_selectors(spec: &SubjectAccessReviewSpec) -> Vec<FieldError> {
    let Some(attributes) = &spec.resource_attributes else {
        return Vec::new();
    };
    let path = FieldPath::new("spec").child("resourceAttributes");
    let fields = attributes.field_selector.iter();
    let fields = fields.flat_map(|given| selectors::check_fields(given, &path.child("fieldSelector")));
    let labels = attributes.label_selector.iter();
    let labels = labels.flat_map(|given| selectors::check_labels(given, &path.child("labelSelector")));
    fields.chain(labels).collect()
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
    asker: &UserInfo,
    user: &UserInfo,
    spec: &SubjectAccessReviewSpec,
    problems: Vec<FieldError>,
) -> Result<Vec<u8>, ReviewError> {
    if !problems.is_empty() {
        return Err(ReviewError::Invalid(problems));
    }
    let review = spec.resource_attributes.as_ref();
    let given = review.and_then(|review| review.field_selector.as_ref());
    let fields = given.map(selectors::fields).unwrap_or_default();
    let given = review.and_then(|review| review.label_selector.as_ref());
    let labels = given.map(selectors::labels).unwrap_or_default();
    let (verb, target) = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(review), _) => {
            let target = ResourceTarget {
                group: &review.group,
                version: &review.version,
                resource: &review.resource,
                subresource: &review.subresource,
                namespace: &review.namespace,
                name: &review.name,
                field_selector: fields.selector.as_ref(),
                label_selector: labels.selector.as_ref(),
            };
            (review.verb.as_str(), AttributesTarget::Resource(target))
        }
        (None, Some(review)) => (review.verb.as_str(), AttributesTarget::Path(&review.path)),
        (None, None) => return Err(ReviewError::BadRequest("no attributes".to_owned())),
    };
    let decision = reviewer
        .authorizers
        .authorize(&Attributes {
            asker: Some(&asker.name),
            user,
            verb,
            target,
        })
        .await?;
    let status = Status {
        allowed: decision.is_allowed(),
        denied: matches!(decision, Decision::Deny(_)),
        reason: decision.reason().to_string(),
        evaluation_error: evaluation_error(&decision, selectors::errors(&fields, &labels)),
    };
    Ok(serde_json::to_vec(&status)?)
}

/// Errors of the authorizers, and those of selectors, as upstream joins them.
fn evaluation_error(decision: &Decision, of_selectors: String) -> String {
    let all = [decision.error().unwrap_or_default().to_owned(), of_selectors];
    let all: Vec<String> = all.into_iter().filter(|own| !own.is_empty()).collect();
    all.join("; ")
}
