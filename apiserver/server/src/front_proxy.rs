//! Settings of front proxies, the flags `--requestheader-*`.

use apiserver_auth::authn::FrontProxyHeaders;
use http::HeaderName;
use std::path::PathBuf;

/// The common name of our own front proxy.
const OWN_PROXY: &str = "front-proxy-client";

/// Front proxies of an operator. Without an authority only the cluster's own is trusted, with the usual headers.
#[derive(Debug, Clone, Default)]
pub struct RequestHeaderConfig {
    /// Certificates of authorities in PEM.
    pub client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; none: any.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
}

impl RequestHeaderConfig {
    /// Lists by flag.
    fn lists(&self) -> [(&'static str, &[String]); 5] {
        [
            ("requestheader-username-headers", &self.username_headers),
            ("requestheader-group-headers", &self.group_headers),
            ("requestheader-extra-headers-prefix", &self.extra_headers_prefix),
            ("requestheader-allowed-names", &self.allowed_names),
            ("requestheader-uid-headers", &self.uid_headers),
        ]
    }

    /// Everything that is wrong with it.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (flag, list) in self.lists() {
            if list.iter().any(|one| one.trim().is_empty()) {
                problems.push(format!("empty value in {flag:?}"));
            }
            let is_names = flag != "requestheader-allowed-names";
            let bad = list.iter().map(|one| one.trim());
            let bad = bad.filter(|one| is_names && !one.is_empty() && one.parse::<HeaderName>().is_err());
            problems.extend(bad.map(|one| format!("--{flag} {one:?} is not a header's name")));
        }
        let standard = |own: &String| own.trim().eq_ignore_ascii_case("x-remote-uid");
        if !self.uid_headers.is_empty() && !self.uid_headers.iter().any(standard) {
            problems.push(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
                    .to_owned(),
            );
        }
        problems
    }

    /// Headers that name a user. An operator's are taken as they are given: proxies that do not know of uids would pass on
    /// what their clients say.
    pub(crate) fn headers(&self) -> FrontProxyHeaders {
        if self.client_ca_file.is_none() && self.lists().iter().all(|(_, list)| list.is_empty()) {
            return FrontProxyHeaders::default();
        }
        // What is no name was refused by `check`.
        let names = |list: &[String]| {
            list.iter()
                .filter_map(|one| one.trim().parse().ok())
                .collect::<Vec<_>>()
        };
        let prefixes = self.extra_headers_prefix.iter();
        FrontProxyHeaders {
            username: names(&self.username_headers),
            uid: names(&self.uid_headers),
            group: names(&self.group_headers),
            extra_prefix: prefixes.map(|one| one.trim().to_ascii_lowercase()).collect(),
        }
    }

    /// Common names that count, our own among them.
    pub(crate) fn names(&self) -> Vec<String> {
        let own = std::iter::once(OWN_PROXY.to_owned());
        match (&self.client_ca_file, self.allowed_names.is_empty()) {
            (Some(_), true) => Vec::new(),
            (Some(_), false) => own.chain(self.allowed_names.iter().cloned()).collect(),
            (None, _) => own.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn front_proxy_flags_are_checked_as_upstreams() {
        let config = RequestHeaderConfig {
            username_headers: list(&["X-Remote-User", "  "]),
            uid_headers: list(&["X-Our-Uid"]),
            group_headers: list(&["X Remote Group"]),
            ..RequestHeaderConfig::default()
        };
        assert_eq!(
            config.check(),
            [
                "empty value in \"requestheader-username-headers\"",
                "--requestheader-group-headers \"X Remote Group\" is not a header's name",
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work",
            ]
        );
        assert!(RequestHeaderConfig::default().check().is_empty());
    }

    #[test]
    fn front_proxies_of_an_operator_have_the_headers_that_are_given() {
        let usual = RequestHeaderConfig::default();
        assert_eq!(usual.headers(), FrontProxyHeaders::default());
        assert_eq!(usual.names(), [OWN_PROXY]);
        let given = RequestHeaderConfig {
            client_ca_file: Some("ca.crt".into()),
            username_headers: list(&["X-Remote-User"]),
            ..usual
        };
        assert!(given.headers().uid.is_empty());
        assert!(given.names().is_empty(), "any name of that authority");
        let named = RequestHeaderConfig {
            allowed_names: list(&["proxy"]),
            ..given
        };
        assert_eq!(named.names(), [OWN_PROXY, "proxy"]);
    }
}
