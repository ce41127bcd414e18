//! `/statusz` and `/flagz`: what this server is and how it was started, for operators that look for a fault. As text, or as
//! the objects of `config.k8s.io/v1beta1`.

use crate::state::ServerState;
use apiserver_endpoints::{ApiError, Body, yaml};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};
use machinery_meta::debug_page::{Form, GROUP, Process, VERSION, flags_text};
use serde_json::{Value, json};

const COMPONENT: &str = "apiserver";
/// Paths that upstream's page lists.
const PATHS: [&str; 7] = [
    "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version",
];

/// The answer, when the path is one of these.
pub(crate) fn answer(
    core: &ServerState,
    path: &str,
    headers: &HeaderMap,
) -> Option<Result<Response<Body>, ApiError>> {
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
fn form(headers: &HeaderMap, page: &str) -> Result<Form, ApiError> {
    let accepted = headers
        .get(ACCEPT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let accepted = accepted.unwrap_or_default();
    Form::of(&accepted, page)
        .ok_or_else(|| ApiError::NotAcceptable(Form::OFFERED.map(str::to_owned).to_vec()))
}

fn statusz(core: &ServerState, form: Form) -> Response<Body> {
    let version = apiserver_endpoints::VersionInfo::default();
    let process = Process {
        component: COMPONENT,
        began: core.began,
        now: core.runtime.now(),
        language: &version.go_version,
        binary_version: version.git_version.trim_start_matches('v'),
        emulation_version: &format!("{}.{}", version.emulation_major, version.emulation_minor),
        paths: &PATHS,
    };
    if form == Form::Text {
        return text(process.text());
    }
    let members = json!({
        "startTime": process.start_time(),
        "uptimeSeconds": process.uptime_seconds(),
        "goVersion": process.language,
        "binaryVersion": process.binary_version,
        "emulationVersion": process.emulation_version,
        "paths": process.paths,
    });
    object("Statusz", members, form)
}

fn flagz(flags: &[(String, String)], form: Form) -> Response<Body> {
    if form == Form::Text {
        return text(flags_text(COMPONENT, flags));
    }
    let flags: serde_json::Map<String, Value> = flags
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect();
    object("Flagz", json!({ "flags": flags }), form)
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
