//! Validation of a webhook's address: a URL outside, or a service of the cluster.

use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::Ref;

const FORM: &str = "; desired format: https://host[/path]";

/// The parts of a URL that rules speak of.
#[derive(Debug, Default)]
struct Url<'a> {
    scheme: &'a str,
    user: &'a str,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    /// `None` for what has a colon first and so no scheme.
    fn parse(text: &'a str) -> Option<Self> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let named = |scheme: &str| {
            let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest)
        };
        let (scheme, rest) = match text.split_once(':') {
            Some(("", _)) => return None,
            Some((scheme, rest)) if named(scheme) => (scheme, rest),
            _ => ("", text),
        };
        let authority = rest.strip_prefix("//").unwrap_or_default();
        let authority = authority.split('/').next().unwrap_or_default();
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        Some(Self {
            scheme,
            user,
            host,
            query,
            fragment,
        })
    }
}

/// Problems of a webhook's URL.
pub fn webhook_url_problems(path: &FieldPath, text: &str) -> Vec<FieldError> {
    let Some(url) = Url::parse(text) else {
        let detail = format!("url must be a valid URL: parse {text:?}: missing protocol scheme{FORM}");
        return vec![FieldError::required(path, detail)];
    };
    let mut problems = Vec::new();
    let mut wrong = |value: &str, detail: String| problems.push(FieldError::invalid(path, value, detail));
    if url.scheme != "https" {
        wrong(
            url.scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if url.host.is_empty() {
        wrong("", format!("host must be specified{FORM}"));
    }
    for (value, what) in [
        (url.user, "user information is"),
        (url.fragment, "fragments are"),
        (url.query, "query parameters are"),
    ] {
        if !value.is_empty() {
            wrong(value, format!("{what} not permitted in the URL"));
        }
    }
    problems
}

/// Problems of a webhook's service.
pub fn webhook_service_problems(path: &FieldPath, service: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for name in ["name", "namespace"] {
        if service.str(name).is_empty() {
            problems.push(FieldError::required(&path.child(name), ""));
        }
    }
    if let Some(port) = service.get("port").and_then(Ref::as_i64) {
        let wrong = syntax::port_number(port);
        if !wrong.is_empty() {
            let detail = format!("port is not valid: {}", wrong.join(", "));
            problems.push(FieldError::invalid(&path.child("port"), port, detail));
        }
    }
    problems.extend(path_problems(&path.child("path"), service.str("path")));
    problems
}

fn path_problems(path: &FieldPath, text: &str) -> Vec<FieldError> {
    let wrong = |detail: String| FieldError::invalid(path, text, detail);
    let mut problems = Vec::new();
    if text.is_empty() || text == "/" {
        return problems;
    }
    if !text.starts_with('/') {
        problems.push(wrong("must start with a '/'".into()));
    }
    // Upstream leaves out the first character whatever it is.
    let mut rest = text.chars();
    rest.next();
    let rest = rest.as_str();
    for (at, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            problems.push(wrong(format!("segment[{at}] may not be empty")));
        } else {
            let details = syntax::dns1123_subdomain(step).into_iter();
            problems.extend(details.map(|detail| wrong(format!("segment[{at}]: {detail}"))));
        }
    }
    problems
}
