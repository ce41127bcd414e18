//! Members of `system:masters` may do everything, before anything is read.

use super::{Attributes, Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use machinery_meta::UserInfo;

#[derive(Debug, Clone, Copy)]
pub struct Masters;

impl Authorizer for Masters {
    fn name(&self) -> &'static str {
        "kubernetes.io/system-privileged-group"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        let decision = if attributes.user.in_group(UserInfo::MASTERS) {
            Decision::Allow(Reason::None)
        } else {
            Decision::NoOpinion(Reason::None)
        };
        Box::pin(std::future::ready(Ok(decision)))
    }

    /// RBAC names them: `cluster-admin` is bound to this group.
    fn rules_for<'a>(&'a self, _user: &'a UserInfo, _namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}
