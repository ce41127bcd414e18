//! The meaning of a request, read from its method and address alone (upstream's `RequestInfoResolver`).

use apiserver_registry::Scope;
use apiserver_registry::strategy::path_segment_problems;
use http::Method;
use machinery_meta::field_selector::FieldSelector;
use std::fmt::{self, Write};

/// The verbs of the API, as authorization and audit name them; non-resource requests use the lower-case method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    pub is_resource_request: bool,
    pub path: String,
    pub verb: String,
    /// `api` or `apis`.
    pub api_prefix: String,
    pub api_group: String,
    pub api_version: String,
    /// The namespace that authorization and audit read: that of the scope, and for a namespace itself its own name.
    pub namespace: String,
    /// The scope of the request, as storage reads it.
    pub scope: Scope,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    /// The path relative to the resource: `[pods, a, log]`.
    pub parts: Vec<String>,
    /// As the query has them, for list, watch and deletecollection; empty where the path has the verb.
    pub field_selector: String,
    pub label_selector: String,
}

/// The path looks like a resource's and is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestInfoError {
    #[error("unable to determine kind and namespace from url, {0}")]
    IncompleteSpecialVerb(String),
}

/// Subresources of a namespace itself, so that `namespaces/x/status` is not a resource `status` in `x`.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];
const SPECIAL_VERBS: [&str; 2] = ["proxy", "watch"];

impl RequestInfo {
    /// Reads method, path and query; the path is percent-decoded here.
    pub fn parse(method: &Method, uri: &http::Uri) -> Result<Self, RequestInfoError> {
        let path = percent_decode(uri.path());
        let query = Query::parse(uri.query().unwrap_or_default());
        let mut info = Self {
            verb: method.as_str().to_ascii_lowercase(),
            path,
            ..Self::default()
        };
        let all: Vec<String> = info
            .path
            .trim_matches('/')
            .split('/')
            .map(str::to_owned)
            .collect();
        let Some(rest) = info.read_group_version(&all) else {
            return Ok(info);
        };
        info.is_resource_request = true;
        let is_by_path = SPECIAL_VERBS.contains(&rest[0].as_str());
        let rest = info.read_verb(method, rest)?;
        info.read_resource(rest);
        info.refine_verb(&query);
        if !is_by_path {
            info.read_selectors(&query);
        }
        Ok(info)
    }

    /// Consumes prefix, group and version; `None` for anything that is not a resource path.
    fn read_group_version<'a>(&mut self, all: &'a [String]) -> Option<&'a [String]> {
        if all.len() < 3 {
            return None;
        }
        let (prefix, mut rest) = all.split_first()?;
        match prefix.as_str() {
            "api" => {}
            "apis" if rest.len() >= 3 => {
                self.api_group.clone_from(&rest[0]);
                rest = &rest[1..];
            }
            _ => return None,
        }
        self.api_prefix.clone_from(prefix);
        self.api_version.clone_from(&rest[0]);
        Some(&rest[1..])
    }

    fn read_verb<'a>(
        &mut self,
        method: &Method,
        rest: &'a [String],
    ) -> Result<&'a [String], RequestInfoError> {
        if SPECIAL_VERBS.contains(&rest[0].as_str()) {
            if rest.len() < 2 {
                return Err(RequestInfoError::IncompleteSpecialVerb(self.path.clone()));
            }
            self.verb.clone_from(&rest[0]);
            return Ok(&rest[1..]);
        }
        let verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        verb.clone_into(&mut self.verb);
        Ok(rest)
    }

    fn read_resource(&mut self, mut rest: &[String]) {
        if rest[0] == "namespaces" && rest.len() > 1 {
            self.namespace.clone_from(&rest[1]);
            if rest.len() > 2 && !NAMESPACE_SUBRESOURCES.contains(&rest[2].as_str()) {
                self.scope = Scope::of(&rest[1]);
                rest = &rest[2..];
            }
        }
        self.parts = rest.to_vec();
        if rest.len() >= 3 && self.verb != "proxy" {
            self.subresource.clone_from(&rest[2]);
        }
        if rest.len() >= 2 {
            self.name.clone_from(&rest[1]);
        }
        self.resource.clone_from(&rest[0]);
    }

    /// Makes a get without a name a list or a watch, and a delete a deletecollection.
    fn refine_verb(&mut self, query: &Query) {
        if self.name.is_empty() && self.verb == "get" {
            self.verb = if query.boolean("watch") { "watch" } else { "list" }.to_owned();
            if let Some(name) = query.get("fieldSelector").and_then(exact_name) {
                self.name = name;
            }
        } else if self.name.is_empty() && self.verb == "delete" {
            "deletecollection".clone_into(&mut self.verb);
        }
    }

    /// Reads the selectors for authorization: not of `/watch/` paths, where a selector need not count (upstream's rule).
    fn read_selectors(&mut self, query: &Query) {
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.field_selector = query.get("fieldSelector").unwrap_or_default().to_owned();
            self.label_selector = query.get("labelSelector").unwrap_or_default().to_owned();
        }
    }

    /// `resource/subresource`, as authorization and metrics write it.
    pub fn resource_path(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.path)
    }
}

/// The name in a field selector that requests exactly one (`metadata.name=x`), when it could be a path segment. The
/// selector is parsed as the store parses it, so that both see the same name.
fn exact_name(selector: &str) -> Option<String> {
    let fields = FieldSelector::parse(selector).ok()?;
    let name = fields.required("metadata.name")?;
    let usable = !name.is_empty() && path_segment_problems(name, false).is_empty();
    usable.then(|| name.to_owned())
}

/// A query string, decoded as Go's `URL.Query` does: the first value of a name counts, and a pair with a semicolon or a broken
/// escape is none. Its length is bounded by the address's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((query_decode(name)?, query_decode(value)?))
        });
        Self(decoded.collect())
    }

    /// The pairs as a query string again, sorted by name (Go's `Values.Encode`).
    pub fn encoded(&self) -> String {
        let mut pairs: Vec<&(String, String)> = self.0.iter().collect();
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(name, value)| format!("{}={}", query_encode(name), query_encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    pub fn of(uri: &http::Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Go's conversion: present and neither `false` nor `0` is true.
    pub fn boolean(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `None` where an escape is broken.
fn query_decode(text: &str) -> Option<String> {
    let mut escapes = text.split('%').skip(1);
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    escapes
        .all(is_escape)
        .then(|| percent_decode(&text.replace('+', " ")))
}

fn query_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) => out.push(char::from(byte)),
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// Percent-decodes; a broken escape stays as it is, and bytes that are not UTF-8 become replacement characters.
pub(crate) fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, uri: &str, expected: &str) {
        let info = RequestInfo::parse(&method, &uri.parse().unwrap()).unwrap();
        let found = format!(
            "{} g={} v={} ns={} r={} sub={} n={}",
            info.verb,
            info.api_group,
            info.api_version,
            info.namespace,
            info.resource,
            info.subresource,
            info.name
        );
        assert_eq!(found, expected, "{method} {uri}");
    }

    #[test]
    fn query_is_read_as_go_reads_it_and_written_anew() {
        let check = |text: &str, expected: &str| assert_eq!(Query::parse(text).encoded(), expected, "{text}");
        check("b=2&a=1+1&b=%31", "a=1+1&b=2&b=1");
        // Go leaves such pairs out, and so they must decide nothing here.
        check("fieldSelector=metadata.name%3Dmine%2Ca!%3D%&limit=1", "limit=1");
        check("fieldSelector=metadata.name%3Dmine;&watch", "watch=");
        check("%zz=1&a=%4&&c=%c3%A9", "c=%C3%A9");
        let info = |query: &str| {
            let uri = format!("/apis/boats.example/v1/boats?{query}");
            RequestInfo::parse(&Method::GET, &uri.parse().unwrap()).unwrap()
        };
        assert_eq!(info("fieldSelector=metadata.name%3Dmine").name, "mine");
        assert_eq!(info("fieldSelector=metadata.name%3Dmine%2Ca!%3D%").name, "");
    }

    #[test]
    fn selectors_of_paths_with_a_verb_are_not_authorized_by() {
        let selector = |uri: &str| {
            let info = RequestInfo::parse(&Method::GET, &uri.parse().unwrap()).unwrap();
            (info.verb, info.field_selector, info.label_selector)
        };
        let query = "fieldSelector=spec.nodeName%3Dn&labelSelector=a";
        let own = |field: &str, label: &str| ("watch".to_owned(), field.to_owned(), label.to_owned());
        assert_eq!(
            selector(&format!("/api/v1/pods?watch=1&{query}")),
            own("spec.nodeName=n", "a")
        );
        assert_eq!(selector(&format!("/api/v1/watch/pods?{query}")), own("", ""));
    }

    #[test]
    fn resource_paths() {
        check(Method::GET, "/api/v1/pods", "list g= v=v1 ns= r=pods sub= n=");
        check(
            Method::GET,
            "/api/v1/pods?watch=1",
            "watch g= v=v1 ns= r=pods sub= n=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/b",
            "get g= v=v1 ns=a r=pods sub= n=b",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/b/log",
            "get g= v=v1 ns=a r=pods sub=log n=b",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            "get g= v=v1 ns=a r=namespaces sub= n=a",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update g= v=v1 ns=a r=namespaces sub=finalize n=a",
        );
        check(
            Method::GET,
            "/api/v1/namespaces",
            "list g= v=v1 ns= r=namespaces sub= n=",
        );
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection g=apps v=v1 ns=a r=deployments sub= n=",
        );
        check(
            Method::GET,
            "/api/v1/watch/namespaces/a/pods/b",
            "watch g= v=v1 ns=a r=pods sub= n=b",
        );
        check(
            Method::GET,
            "/api/v1/pods?fieldSelector=metadata.name%3Dx",
            "list g= v=v1 ns= r=pods sub= n=x",
        );
        check(
            Method::POST,
            "/api/v1/namespaces/a/pods",
            "create g= v=v1 ns=a r=pods sub= n=",
        );
    }

    #[test]
    fn other_paths() {
        check(Method::GET, "/healthz", "get g= v= ns= r= sub= n=");
        check(Method::GET, "/apis/apps/v1", "get g= v= ns= r= sub= n=");
        check(Method::GET, "/api/v1", "get g= v= ns= r= sub= n=");
    }

    /// Attributes of requests as the real server's audit log has them.
    #[test]
    fn request_attributes_are_upstreams() {
        let mut differing = Vec::new();
        let mut compared = 0;
        for line in include_str!("../testdata/attributes.tsv").lines() {
            let Some((request, expected)) = line.split_once('\t').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let (method, uri) = request.split_once(' ').unwrap();
            let info = RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap()).unwrap();
            let found = if info.is_resource_request {
                [
                    &info.verb,
                    &info.api_group,
                    &info.api_version,
                    &info.resource,
                    &info.subresource,
                    &info.namespace,
                    &info.name,
                ]
                .map(String::as_str)
                .join("\t")
            } else {
                info.verb.clone()
            };
            compared += 1;
            if found != expected {
                differing.push(format!("{request}\n  upstream: {expected}\n  ours:     {found}"));
            }
        }
        assert!(compared > 300);
        assert!(differing.is_empty(), "{}", differing.join("\n"));
    }
}
