//! Paths that anyone may ask for (`--authorization-always-allow-paths`): health, also before any role is stored.

use super::{Attributes, Authorizer, AuthzFuture, Decision, Reason, Target, UserRules};
use machinery_meta::UserInfo;

const PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

#[derive(Debug, Clone, Copy)]
pub struct AlwaysAllowPaths;

impl Authorizer for AlwaysAllowPaths {
    fn name(&self) -> &'static str {
        "AlwaysAllow"
    }

    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> AuthzFuture<'a, Decision> {
        let open = matches!(attributes.target, Target::Path(path) if PATHS.contains(&path))
            && attributes.verb == "get";
        let decision = if open {
            Decision::Allow(Reason::None)
        } else {
            Decision::NoOpinion(Reason::None)
        };
        Box::pin(std::future::ready(decision))
    }

    fn rules_for<'a>(&'a self, _user: &'a UserInfo, _namespace: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}
