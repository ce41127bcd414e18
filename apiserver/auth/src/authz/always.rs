//! The modes `AlwaysAllow` and `AlwaysDeny`.

use super::rbac::full_authority;
use super::{Attributes, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use machinery_meta::UserInfo;

/// Allows everything.
#[derive(Debug)]
pub(super) struct AlwaysAllow;

/// The authorizer without an opinion on anything, in words that say so.
#[derive(Debug)]
pub(super) struct AlwaysDeny;

impl Authorizer for AlwaysAllow {
    fn name(&self) -> &str {
        "alwaysallow"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("AlwaysAllow")
    }

    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(std::future::ready(Ok(Decision::Allow(Reason::None))))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules {
            rules: full_authority().into(),
            ..UserRules::default()
        }))
    }
}

impl Authorizer for AlwaysDeny {
    fn name(&self) -> &str {
        "alwaysdeny"
    }

    fn mode(&self) -> Option<&'static str> {
        Some("AlwaysDeny")
    }

    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(std::future::ready(Ok(Decision::no_opinion(
            "Everything is forbidden.",
        ))))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}
