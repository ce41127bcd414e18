//! `SelfSubjectRulesReview`: the rules of the requesting user.

use super::{ReviewError, ReviewRequest, Reviewer};
use crate::authz::rbac::PolicyRule;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    namespace: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<NonResourceRule>,
    incomplete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluation_error: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule {
    verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
}

#[derive(Serialize)]
struct NonResourceRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

pub(super) async fn own(
    reviewer: &Reviewer,
    review: ReviewRequest<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: Spec = serde_json::from_slice(spec)?;
    if spec.namespace.is_empty() {
        return Err(ReviewError::BadRequest("no namespace on request".to_owned()));
    }
    let found = reviewer.authorizers.rules_for(review.user, &spec.namespace).await;
    let mut status = Status {
        resource_rules: Vec::new(),
        non_resource_rules: Vec::new(),
        incomplete: found.incomplete,
        evaluation_error: found.error,
    };
    for PolicyRule {
        verbs,
        api_groups,
        resources,
        resource_names,
        non_resource_urls,
    } in found.rules
    {
        if !non_resource_urls.is_empty() {
            status.non_resource_rules.push(NonResourceRule {
                verbs: verbs.clone(),
                non_resource_urls,
            });
        }
        if !resources.is_empty() {
            status.resource_rules.push(ResourceRule {
                verbs,
                api_groups,
                resources,
                resource_names,
            });
        }
    }
    Ok(serde_json::to_vec(&status)?)
}
