//! Requests without credentials are `system:anonymous`; authorization decides what that may do.

use super::{Authenticated, Authenticator, AuthnFuture, Credentials, Outcome};
use machinery_meta::UserInfo;

pub(super) const NAME: &str = "anonymous";

/// Anonymous access. With paths, only requests to exactly these are let through; the others are unauthorized.
#[derive(Debug, Clone, Default)]
pub struct Anonymous {
    pub paths: Option<Vec<String>>,
}

impl Authenticator for Anonymous {
    fn name(&self) -> &'static str {
        NAME
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        let open = self
            .paths
            .as_ref()
            .is_none_or(|paths| paths.iter().any(|path| path == credentials.path));
        let outcome = if open {
            Outcome::User(Authenticated::new(UserInfo::anonymous()))
        } else {
            Outcome::Pass
        };
        Box::pin(std::future::ready(outcome))
    }
}
