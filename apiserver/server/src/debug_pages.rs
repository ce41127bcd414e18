//! `/statusz` and `/flagz`: what this server is and how it was started, for operators that look for a fault. As text, or as
//! the objects of `config.k8s.io/v1beta1`.

use crate::state::ServerState;
use apiserver_endpoints::{Body, yaml};
use apiserver_registry::RegistryError;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};
use std::fmt::Write as _;

const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
const VERSION: &str = "v1beta1";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";
/// Paths that upstream's page lists.
const PATHS: [&str; 7] = [
    "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Yaml,
}

/// The answer, when the path is one of these.
pub(crate) fn answer(
    core: &ServerState,
    path: &str,
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, RegistryError>> {
    let page = match path {
        "/statusz" if core.config.feature_gates.is_enabled("ComponentStatusz") => "Statusz",
        "/flagz" if core.config.feature_gates.is_enabled("ComponentFlagz") => "Flagz",
        _ => return None,
    };
    Some(form(headers, page).map(|form| match page {
        "Statusz" => statusz(core, form),
        _ => flagz(&core.config.flags, form),
    }))
}

/// Group and version of the object that answers a request to one of these pages; empty for text.
pub(crate) fn object_version(path: &str, headers: &HeaderMap) -> (&'static str, &'static str) {
    let page = if path == "/statusz" { "Statusz" } else { "Flagz" };
    match form(headers, page) {
        Ok(Form::Json | Form::Yaml) => (GROUP, VERSION),
        _ => ("", ""),
    }
}

/// The first form in the order of the client that there is.
fn form(headers: &HeaderMap, page: &str) -> Result<Form, RegistryError> {
    let accepted = headers
        .get(ACCEPT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let accepted = accepted.unwrap_or_default();
    if accepted.trim().is_empty() {
        return Ok(Form::Text);
    }
    let found = accepted.split(',').find_map(|range| form_of(range, page));
    found.ok_or_else(|| {
        let offered = ["application/json", "application/yaml", "text/plain"];
        RegistryError::NotAcceptable(offered.map(str::to_owned).to_vec())
    })
}

fn form_of(range: &str, page: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next()?;
    let mut wanted = [("as", page, false), ("v", VERSION, false), ("g", GROUP, false)];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if let Some((_, own, named)) = wanted.iter_mut().find(|(own, ..)| *own == name) {
            if value != *own {
                return None;
            }
            *named = true;
        }
    }
    let is_object = wanted.iter().all(|(.., named)| *named);
    let is_plain = !wanted.iter().any(|(.., named)| *named);
    match media_type {
        "text/plain" | "text/*" | "*/*" if is_plain => Some(Form::Text),
        "application/json" if is_object => Some(Form::Json),
        "application/yaml" if is_object => Some(Form::Yaml),
        _ => None,
    }
}

fn statusz(core: &ServerState, form: Form) -> Response<Body> {
    let version = apiserver_endpoints::VersionInfo::default();
    let uptime = core.runtime.now().duration_since(core.began).as_secs().max(0);
    let (binary, emulated) = (
        version.git_version.trim_start_matches('v').to_owned(),
        format!("{}.{}", version.emulation_major, version.emulation_minor),
    );
    if form != Form::Text {
        let members = json!({
            "startTime": core.began.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": uptime,
            "goVersion": version.go_version,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": PATHS,
        });
        return object("Statusz", members, form);
    }
    text(format!(
        "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: \
         {binary}\nEmulation version: {emulated}\nPaths: {}\n",
        core.began.strftime("%a %b %e %H:%M:%S UTC %Y"),
        uptime / 3_600,
        uptime / 60 % 60,
        uptime % 60,
        version.go_version,
        PATHS.join(" "),
    ))
}

fn flagz(flags: &[(String, String)], form: Form) -> Response<Body> {
    if form != Form::Text {
        let flags: serde_json::Map<String, Value> = flags
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        return object("Flagz", json!({ "flags": flags }), form);
    }
    let mut page = format!("\n{COMPONENT} flagz\n{WARNING}\n");
    for (name, value) in flags {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{name}={value}");
    }
    text(page)
}

fn text(page: String) -> Response<Body> {
    with_type(page.into_bytes(), "text/plain; charset=utf-8")
}

fn object(kind: &str, members: Value, form: Form) -> Response<Body> {
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": COMPONENT},
    });
    if let (Some(object), Value::Object(members)) = (object.as_object_mut(), members) {
        object.extend(members);
    }
    let json = object.to_string();
    match form {
        Form::Yaml => with_type(yaml::from_json(json.as_bytes()), "application/yaml"),
        _ => with_type((json + "\n").into_bytes(), "application/json"),
    }
}

fn with_type(body: Vec<u8>, media_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Option<Form>) {
        let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
        assert_eq!(form(&headers, "Statusz").ok(), expected, "{accept}");
    }

    #[test]
    fn debug_pages_are_negotiated_as_upstreams() {
        check("", Some(Form::Text));
        check("*/*", Some(Form::Text));
        check("text/html, text/plain;q=0.5", Some(Form::Text));
        check("text/html", None);
        check("application/json", None);
        let object = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
        check(object, Some(Form::Json));
        check(&object.replace("json", "yaml"), Some(Form::Yaml));
        check(&object.replace("Statusz", "Flagz"), None);
        check(&object.replace("v1beta1", "v2"), None);
        check(
            &format!("{}, */*", object.replace("v1beta1", "v2")),
            Some(Form::Text),
        );
    }
}
