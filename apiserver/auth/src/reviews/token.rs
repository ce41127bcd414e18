//! `TokenReview`: the user of a token; and `SelfSubjectReview`: the requesting user.

use super::{ReviewError, ReviewRequest, Reviewer};
use crate::authn::token::common;
use crate::authn::{Outcome, ShownToken};
use crate::authz::Busy;
use crate::review_webhook::share_of;
use machinery_meta::UserInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    token: String,
    audiences: Vec<String>,
}

#[derive(Serialize, Default)]
struct Status {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    authenticated: bool,
    user: User,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audiences: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

#[derive(Serialize, Default)]
struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        Self {
            username: user.name,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        }
    }
}

pub(super) async fn review(
    reviewer: &Reviewer,
    review: ReviewRequest<'_>,
    spec: &[u8],
) -> Result<Vec<u8>, ReviewError> {
    let spec: Spec = serde_json::from_slice(spec)?;
    if spec.token.is_empty() {
        return Err(ReviewError::BadRequest(
            "token is required for TokenReview in authentication".to_owned(),
        ));
    }
    let audiences = if spec.audiences.is_empty() {
        reviewer.tokens.api_audiences().to_vec()
    } else {
        spec.audiences.clone()
    };
    let own = reviewer.tokens.api_audiences();
    let shown = ShownToken {
        token: &spec.token,
        audiences: &audiences,
        client: share_of(&review.user.name),
        now: review.now,
    };
    let status = match reviewer.tokens.review(shown).await {
        Outcome::User(found) => {
            // Kinds of tokens that know no audience are good for the API server's own.
            let implicit = || common(own, &audiences);
            let audiences: Vec<String> = found.audiences.unwrap_or_else(implicit);
            if audiences.is_empty() {
                Status {
                    error: "token audiences are not those of the request".to_owned(),
                    ..Status::default()
                }
            } else {
                Status {
                    authenticated: true,
                    user: found.user.into(),
                    audiences,
                    error: String::new(),
                }
            }
        }
        Outcome::Refused(refusal) if refusal.is_unchecked => return Err(Busy.into()),
        Outcome::Refused(refusal) => Status {
            error: refusal.reason,
            ..Status::default()
        },
        Outcome::Pass => Status::default(),
    };
    Ok(serde_json::to_vec(&status)?)
}

pub(super) fn own(review: ReviewRequest<'_>) -> Result<Vec<u8>, ReviewError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Own {
        user_info: User,
    }
    Ok(serde_json::to_vec(&Own {
        user_info: review.user.clone().into(),
    })?)
}
