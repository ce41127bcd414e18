//! Links of a proxied page, made to lead through the proxy (upstream's `Transport.rewriteURL`).

/// The address of a proxied page for its client, and for the server.
#[derive(Debug, Clone)]
pub(super) struct Links {
    /// The address of the proxy without a slash at its end.
    pub(super) prefix: String,
    /// `host:port` that the page was fetched from.
    pub(super) backend: String,
    /// The `Host` of the request.
    pub(super) client: String,
}

/// The parts of a link that decide what it becomes.
struct Link<'a> {
    /// `https://user@host`, as far as it has that.
    origin: &'a str,
    /// Empty where the link has none.
    host: &'a str,
    /// With query and fragment.
    path: &'a str,
}

impl<'a> Link<'a> {
    fn parse(link: &'a str) -> Self {
        let scheme = scheme_length(link);
        let Some(rest) = link[scheme..].strip_prefix("//") else {
            return Self {
                origin: &link[..scheme],
                host: "",
                // `mailto:x` has no path that could begin with a slash.
                path: &link[scheme..],
            };
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        Self {
            origin: &link[..link.len() - rest.len() + end],
            host: authority.rsplit_once('@').map_or(authority, |(_, host)| host),
            path: &rest[end..],
        }
    }
}

/// The bytes of a scheme with its colon; 0 where there is none.
fn scheme_length(link: &str) -> usize {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match link.split_once(':') {
        Some((scheme, _))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_part) =>
        {
            scheme.len() + 1
        }
        _ => 0,
    }
}

impl Links {
    /// The link as it has to be for the client; `None` where it may stay: it is relative, or leads to another host.
    pub(super) fn rewritten(&self, link: &str) -> Option<String> {
        let parsed = Link::parse(link);
        let is_other_host =
            !parsed.host.is_empty() && ![self.backend.as_str(), &self.client].contains(&parsed.host);
        if is_other_host || !parsed.path.starts_with('/') {
            return None;
        }
        // The client's own host stays; that of the backend would lead past the proxy.
        let origin = if !parsed.host.is_empty() && parsed.host == self.client {
            parsed.origin
        } else {
            ""
        };
        let prefix = match parsed.path.starts_with(&self.prefix) {
            true => "",
            false => &self.prefix,
        };
        let rewritten = format!("{origin}{prefix}{}", parsed.path);
        (rewritten != link).then_some(rewritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(link: &str, expected: &str) {
        let links = Links {
            prefix: "/api/v1/nodes/n/proxy".to_owned(),
            backend: "10.0.0.7:8080".to_owned(),
            client: "localhost:8001".to_owned(),
        };
        let rewritten = links.rewritten(link);
        assert_eq!(rewritten.as_deref().unwrap_or(link), expected);
    }

    #[test]
    fn links_lead_through_the_proxy() {
        check("/a", "/api/v1/nodes/n/proxy/a");
        check("/", "/api/v1/nodes/n/proxy/");
        check("/a?b=/c#/d", "/api/v1/nodes/n/proxy/a?b=/c#/d");
        check("http://10.0.0.7:8080/a/", "/api/v1/nodes/n/proxy/a/");
        check("//10.0.0.7:8080/a", "/api/v1/nodes/n/proxy/a");
        check(
            "https://localhost:8001/a",
            "https://localhost:8001/api/v1/nodes/n/proxy/a",
        );
        check("/api/v1/nodes/n/proxy/a", "/api/v1/nodes/n/proxy/a");
        check(
            "http://10.0.0.7:8080/api/v1/nodes/n/proxy/a",
            "/api/v1/nodes/n/proxy/a",
        );
    }

    #[test]
    fn links_elsewhere_stay() {
        for link in [
            "",
            "a/b",
            "../a",
            "?a=b",
            "#top",
            " /a",
            "mailto:a@b.c",
            "javascript:void(0)",
            "data:text/html,/x",
            "https://example.com/a",
            "//example.com/a",
            "http://10.0.0.7/a",
            "http://10.0.0.7:8080",
        ] {
            check(link, link);
        }
    }
}
