//! Validation of the conversion between versions of a definition.

use crate::shared::validation::{Errors, webhook_service_problems, webhook_url_problems};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

/// The forms of a review that upstream's server speaks.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Every problem of a definition's conversion; messages speak of upstream's internal names.
pub(super) fn validate(spec: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let Some(conversion) = spec.get("conversion") else {
        return;
    };
    let webhook = conversion.get("webhook").filter(|own| !own.is_null());
    let client = webhook
        .and_then(|own| own.get("clientConfig"))
        .filter(|own| !own.is_null());
    let (client_path, reviews) = (
        path.child("webhookClientConfig"),
        path.child("conversionReviewVersions"),
    );
    let strategy = conversion.str("strategy");
    super::one_of(strategy, &path.child("strategy"), &["None", "Webhook"], problems);
    if strategy == "Webhook" {
        match client {
            None => {
                let detail = "required when strategy is set to Webhook";
                problems.push(FieldError::required(&client_path, detail));
            }
            Some(client) => validate_client(client, &client_path, problems),
        }
        return review_versions(webhook, &reviews, problems);
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_some() {
        problems.push(FieldError::forbidden(&client_path, detail));
    }
    if webhook.is_some_and(|own| own.list("conversionReviewVersions").len() > 0) {
        problems.push(FieldError::forbidden(&reviews, detail));
    }
}

fn validate_client(client: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let (url, service) = (
        client.get("url"),
        client.get("service").filter(|own| !own.is_null()),
    );
    match (url.and_then(Ref::as_str), service) {
        (Some(url), None) => problems.extend(webhook_url_problems(&path.child("url"), url)),
        (None, Some(service)) => {
            problems.extend(webhook_service_problems(&path.child("service"), service));
        }
        (Some(_), Some(_)) | (None, None) => {
            let detail = "exactly one of url or service is required";
            problems.push(FieldError::required(path, detail));
        }
    }
}

fn review_versions(webhook: Option<Ref<'_>>, path: &FieldPath, problems: &mut Errors) {
    let own = webhook
        .into_iter()
        .flat_map(|own| own.list("conversionReviewVersions"));
    let versions: Vec<&str> = own.filter_map(Ref::as_str).collect();
    if versions.is_empty() {
        return problems.push(FieldError::required(path, ""));
    }
    let mut seen = HashSet::new();
    for (at, version) in versions.iter().enumerate() {
        let path = path.index(at);
        if !seen.insert(version) {
            problems.push(FieldError::invalid(&path, *version, "duplicate version"));
            continue;
        }
        for detail in syntax::dns1035_label(version) {
            problems.push(FieldError::invalid(&path, *version, detail));
        }
    }
    if !versions.iter().any(|version| REVIEWS.contains(version)) {
        let shown = webhook
            .and_then(|own| own.get("conversionReviewVersions"))
            .map(Ref::to_json);
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        problems.push(FieldError::invalid(
            path,
            Shown(shown.unwrap_or_default()),
            detail,
        ));
    }
}
