//! Credentials that the server shows webhooks, by their addresses (k8s.io/apiserver/pkg/util/webhook/authentication.go).

use crate::trust::ClientIdentity;
use http::header::{HeaderName, HeaderValue};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The user of addresses that no other is for.
const ANY: &str = "*";

/// Credentials for one webhook; nothing of them is in a debug text.
#[derive(Clone, Default)]
pub struct HookCredentials {
    pub identity: Option<Arc<ClientIdentity>>,
    /// Authorization and impersonation.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for HookCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCredentials").finish_non_exhaustive()
    }
}

/// Users of a kubeconfig, whose names are the addresses that they are for.
#[derive(Debug, Clone, Default)]
pub struct CredentialsByHost {
    /// With the problem of those that cannot be used, which is one of the webhooks that need them alone.
    users: HashMap<String, Result<HookCredentials, String>>,
    /// The user of the current context.
    current: Option<String>,
}

impl CredentialsByHost {
    pub fn new(users: HashMap<String, Result<HookCredentials, String>>, current: Option<String>) -> Self {
        Self { users, current }
    }

    /// The credentials for a host and port; none where no user is for it.
    ///
    /// # Errors
    /// The user's credentials cannot be used.
    pub fn of(&self, host_port: &str) -> Result<HookCredentials, String> {
        let default_port = host_port.strip_suffix(":443");
        let found = self
            .named(host_port)
            .or_else(|| self.named(default_port?))
            .or_else(|| self.users.get(ANY))
            .or_else(|| self.users.get(self.current.as_ref()?));
        found.cloned().unwrap_or_else(|| Ok(HookCredentials::default()))
    }

    /// The user of this very name, or of `*.` and the longest end of it.
    fn named(&self, target: &str) -> Option<&Result<HookCredentials, String>> {
        let ends = target.match_indices('.').map(|(at, _)| &target[at..]);
        let mut starred = ends.filter_map(|end| self.users.get(&format!("{ANY}{end}")));
        self.users.get(target).or_else(|| starred.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of these users that counts for a target.
    #[track_caller]
    fn check(users: &[&str], current: Option<&str>, target: &str, expected: &str) {
        let credentials = |name: &&str| {
            let header = (http::header::AUTHORIZATION, HeaderValue::from_str(name).unwrap());
            let own = HookCredentials {
                identity: None,
                headers: vec![header],
            };
            ((*name).to_owned(), Ok(own))
        };
        let users = users.iter().map(credentials).collect();
        let all = CredentialsByHost::new(users, current.map(str::to_owned));
        let found = all.of(target).unwrap();
        let name = found
            .headers
            .first()
            .map_or("", |(_, value)| value.to_str().unwrap());
        assert_eq!(name, expected, "{target}");
    }

    /// Upstream's table (authentication_test.go).
    #[test]
    fn credentials_are_those_of_the_most_selective_user() {
        check(&[], None, "foo.com", "");
        check(&["bar.com"], Some("bar.com"), "foo.com", "bar.com");
        check(&["foo.com", "*.com", "bar.com"], None, "foo.com", "foo.com");
        check(&["*.com", "bar.com"], None, "foo.com", "*.com");
        check(&["*", "bar.com"], None, "foo.com", "*");
        check(&["*", "bar.com"], None, "kubernetes.default.svc", "*");
        let stars = ["*.two.three.com", "*.three.com", "*.com"];
        check(&stars, None, "one.two.three.com", "*.two.three.com");
        let fallback = [&stars[..], &["*"]].concat();
        let with = |more: &[&'static str]| [&fallback[..], more].concat();
        let target = "one.two.three.com:443";
        check(&with(&[target]), None, target, target);
        let port = "*.two.three.com:443";
        check(&with(&[port]), None, target, port);
        check(&fallback, None, target, "*.two.three.com");
        let target = "one.two.three.com:8443";
        check(&with(&[target]), None, target, target);
        let port = "*.two.three.com:8443";
        check(&with(&[port, "one.two.three.com"]), None, target, port);
        check(&with(&["one.two.three.com"]), None, target, "*");
        check(&with(&[]), Some("*.com"), "other.org:443", "*");
        check(&stars, Some("absent"), "other.org:443", "");
    }

    #[test]
    fn credentials_that_cannot_be_used_are_a_problem_of_their_webhooks_alone() {
        let users = HashMap::from([("a.com".to_owned(), Err("no such file".to_owned()))]);
        let all = CredentialsByHost::new(users, None);
        assert_eq!(all.of("a.com:443").unwrap_err(), "no such file");
        assert!(all.of("b.com:443").is_ok());
    }
}
