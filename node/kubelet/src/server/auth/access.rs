//! Authorization of requests by SubjectAccessReviews.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use machinery_meta::UserInfo;

use super::{Delegated, Refusal, Unanswered, created};

/// Upstream's cache times: of a yes, of a no.
pub(in crate::server) const ALLOWED_AGE_MAX: Duration = Duration::from_secs(300);
pub(in crate::server) const DENIED_AGE_MAX: Duration = Duration::from_secs(30);

/// User, verb and subresource of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DecisionKey {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    verb: &'static str,
    subresource: &'static str,
}

impl Delegated {
    /// Authorizes a user for one of the node's subresources; any of those given is enough.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresources: &[&'static str],
    ) -> Result<(), Refusal> {
        for subresource in subresources {
            if self.decide(user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(Refusal::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }

    /// Decides for one subresource, from the cache or by a review.
    async fn decide(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Refusal> {
        let key = DecisionKey {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            verb,
            subresource,
        };
        let now = self.runtime.monotonic();
        if let Some(known) = self.decisions.get(&key, now) {
            return Ok(known);
        }
        let review = self.access_review(user, verb, subresource);
        let reviewed = self
            .access_reviews
            .ask(user.name.clone(), key.clone(), now, review);
        let allowed = reviewed.await?;
        let age = match allowed {
            true => ALLOWED_AGE_MAX,
            false => DENIED_AGE_MAX,
        };
        self.decisions.put(key, allowed, now, age);
        Ok(allowed)
    }

    fn access_review(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send + 'static {
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            name: Some(self.node_name.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let (client, runtime) = (self.client.clone(), self.runtime.clone());
        let failed = format!(
            "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
            user.name
        );
        async move {
            let answer = created(&runtime, &client, &review).await;
            let answer = answer.map_err(|why| match why {
                Unanswered::Busy => Refusal::TooMany,
                Unanswered::Failed(error) => {
                    tracing::warn!(error, "authorization error");
                    Refusal::Unavailable(failed)
                }
            });
            Ok(answer?.status.unwrap_or_default().allowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stories::{POD, story};
    use super::*;

    #[test]
    fn uid_and_extra_of_a_token_are_part_of_the_question() {
        story(|_, delegated, _| async move {
            let user = delegated.authenticate("good", POD).await.unwrap();
            assert_eq!(delegated.authorize(&user, "get", &["proxy"]).await, Ok(()));
            let mut other = user.clone();
            other.extra.clear();
            assert!(delegated.authorize(&other, "get", &["proxy"]).await.is_err());
            other = user;
            other.uid.clear();
            assert!(delegated.authorize(&other, "get", &["proxy"]).await.is_err());
        });
    }

    #[test]
    fn refusals_have_upstreams_words() {
        story(|_, delegated, _| async move {
            let authorize = |name: &str| {
                let user = UserInfo::named(name, ["blue"]);
                let delegated = delegated.clone();
                async move { delegated.authorize(&user, "get", &["pods", "proxy"]).await }
            };
            let words = "Forbidden (user=anna, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
            assert_eq!(authorize("anna").await, Err(Refusal::Forbidden(words.to_owned())));
            assert_eq!(authorize("busy").await, Err(Refusal::TooMany));
            let words = "Authorization error (user=broken, verb=get, resource=nodes, subresource=pods)";
            assert_eq!(
                authorize("broken").await,
                Err(Refusal::Unavailable(words.to_owned()))
            );
        });
    }
}
